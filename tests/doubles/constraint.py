"""A grammar of one text over letters."""

from dataclasses import dataclass

from doubles.model import VOCAB_SIZE
from scheduler.core.constraint import ConstraintState


@dataclass
class Spelling:
    """Allows the tokens of ``wanted``, one after the other; breaks at any other one."""

    wanted: tuple[int, ...]
    num_taken: int = 0

    @property
    def mask(self) -> bytes:
        return (1 << self.wanted[self.num_taken]).to_bytes(-(-VOCAB_SIZE // 8), "little")

    def advance(self, token_id: int) -> ConstraintState:
        if token_id != self.wanted[self.num_taken]:
            return ConstraintState.BROKEN
        self.num_taken += 1
        return ConstraintState.COMPLETE if self.num_taken == len(self.wanted) else ConstraintState.OPEN

    def fork(self) -> "Spelling":
        return Spelling(self.wanted, self.num_taken)
