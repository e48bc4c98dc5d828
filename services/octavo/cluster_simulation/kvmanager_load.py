"""What a cluster's steps ask of its kvmanagers: plans, processor time, and bytes of the journal.

The simulation may use large blocks for speed; this counts as if blocks had ``SERVING_BLOCK_SIZE`` tokens, as they have
where Octavo serves. The seconds were measured by ``benchmarks/kvmanager_bench.py`` on one core of a busy machine: the
core takes 128 µs for a decode step of 256 sequences; gRPC and Redis take more than that, whatever the step. The bytes
are those of the message that is journalled (``tests/unit/octavo/cluster_simulation/test_kvmanager_load.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.cluster_simulation.batch import Row

SERVING_BLOCK_SIZE = 16

SERVICE_S = 520e-6  # per plan: CPU time of kvmanager and Redis beside the core's
PLAN_S, PLAN_BYTES = 23e-6, 18  # whatever is in it
ROW_S, ROW_BYTES = 0.41e-6, 9  # per sequence in it
ENTERING_BLOCK_S, ENTERING_BLOCK_BYTES = 0.75e-6, 32  # per full block of an entering prompt: looked up or taken
SEALED_BLOCK_S, SEALED_BLOCK_BYTES = 2.1e-6, 37  # per block that became full: published, and released some day


@dataclass(slots=True)
class KvManagerLoad:
    """Adds up what plans hold."""

    num_plans: int = 0
    num_rows: int = 0
    num_entering_tokens: int = 0
    num_sealed_tokens: int = 0

    def planned(self, running: Sequence[Row], admitted: Sequence[Row]) -> None:
        """Counts one plan."""
        self.num_plans += 1
        self.num_rows += len(running) + len(admitted)
        self.num_entering_tokens += sum(row.job.num_tokens for row in admitted)
        self.num_sealed_tokens += sum(row.num_new_slots for row in running)
        self.num_sealed_tokens += sum(row.num_new_slots for row in admitted)

    def decoded(self, num_rows: int, num_plans: int) -> None:
        """Counts plans in which every sequence gets one slot."""
        self.num_plans += num_plans
        self.num_rows += num_rows * num_plans
        self.num_sealed_tokens += num_rows * num_plans

    def add(self, other: "KvManagerLoad") -> None:
        """Counts another's plans too."""
        self.num_plans += other.num_plans
        self.num_rows += other.num_rows
        self.num_entering_tokens += other.num_entering_tokens
        self.num_sealed_tokens += other.num_sealed_tokens

    @property
    def core_s(self) -> float:
        """Seconds of one core for ``BlockSpace.apply``, without gRPC and Redis."""
        return self._weighed(PLAN_S, ROW_S, ENTERING_BLOCK_S, SEALED_BLOCK_S)

    @property
    def service_s(self) -> float:
        """Seconds of one core for kvmanager and Redis together."""
        return self.core_s + self.num_plans * SERVICE_S

    @property
    def journal_bytes(self) -> float:
        """Bytes of all entries."""
        return self._weighed(PLAN_BYTES, ROW_BYTES, ENTERING_BLOCK_BYTES, SEALED_BLOCK_BYTES)

    def _weighed(self, plan: float, row: float, entering_block: float, sealed_block: float) -> float:
        return (
            self.num_plans * plan
            + self.num_rows * row
            + self.num_entering_tokens / SERVING_BLOCK_SIZE * entering_block
            + self.num_sealed_tokens / SERVING_BLOCK_SIZE * sealed_block
        )
