"""Whether all views of a pool agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction, and in whose view it is."""

    owner: Literal["memory", "redis", "worker"]
    message: str


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings; none: all views agree. ``not_compared`` says which views could not be looked at, and why."""

    pool_id: str
    step_id: int
    epoch: int
    findings: Sequence[Finding]
    not_compared: Sequence[str]
    num_checked_blocks: int
    num_checked_sequences: int
