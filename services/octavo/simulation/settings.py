"""How a simulated server is run."""

from dataclasses import dataclass

from octavo.simulation.spaces import Pool, SpaceName
from scheduler.core.preemption import PreemptionMode


@dataclass(frozen=True, slots=True)
class Settings:
    """A memory space on a server, and the scheduler's limits. The defaults are those of vLLM's first version."""

    space: SpaceName
    pool: Pool
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2560
    preemption_mode: PreemptionMode = PreemptionMode.AUTO
    caches_prefixes: bool = False
    jumps: bool = True
    looks_at_sharing: bool = False

    def can_hold(self, num_sequences: int) -> bool:
        """Whether so many sequences of the full length have places at once, if the space sets places aside."""
        if self.space is SpaceName.PAGED:
            return num_sequences <= self.max_num_seqs
        num_places = self.pool.num_blocks // (
            1 << (-(-self.pool.max_model_len // self.pool.block_size) - 1).bit_length()
        )
        return num_sequences <= min(self.max_num_seqs, num_places)


def preemption_named(name: str) -> PreemptionMode:
    """The scheduler's mode of that name. Raises ``ValueError`` for an unknown one."""
    return PreemptionMode(name)
