"""How many steps can be taken in one with the same outcome.

While everybody decodes and nobody ends, enters or gives way, a step changes nothing but lengths. If each sequence is
told its next k - 1 tokens beforehand, the scheduler asks for k slots at once and the memory grants them: the state
after that one step is the state after k.
"""

from collections.abc import Sequence as Column

from octavo.simulation.settings import Settings
from scheduler.core.sequence import Sequence

_LONGEST = 256


def longest_jump(sequences: Column[Sequence], settings: Settings, num_free_blocks: int | None) -> int:
    """Most steps in which none of ``sequences`` ends before the last one and nobody has to give way.

    ``num_free_blocks`` is ``None`` where slots were reserved beforehand.
    """
    steps_to_end = min(sequence.max_num_tokens - len(sequence.token_ids) for sequence in sequences)
    num_steps = min(_LONGEST, steps_to_end, settings.max_num_batched_tokens // len(sequences))
    if num_free_blocks is None:
        return num_steps
    block_size = settings.pool.block_size
    # All known tokens but the last have their slots; the first of these steps needs one for that.
    rooms = [(1 - len(sequence.token_ids)) % block_size for sequence in sequences]
    while num_steps > 1 and sum(-(-(num_steps - room) // block_size) for room in rooms) > num_free_blocks:
        num_steps //= 2
    return num_steps
