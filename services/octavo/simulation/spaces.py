"""The memory spaces by name, each as the paper ran it."""

from dataclasses import dataclass
from enum import StrEnum

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import PoolShape
from kvmanager.core.spaces.contiguous import ContiguousShape, ContiguousSpace
from kvmanager.core.spaces.memory_space import Estimate, LengthsOf, MemorySpace, Occupancy
from kvmanager.core.spaces.static_batch import StaticBatchSpace, StaticShape
from octavo.simulation.cost import CostModel
from octavo.simulation.machines import Server, contiguous_cost, machine, paged_cost, static_cost

WATERMARK = 0.01  # share of the blocks that an entering group leaves free, as kvmanager's default and vLLM's


class SpaceName(StrEnum):
    """A way to keep KV memory."""

    PAGED = "paged"
    MAX = "max"  # Orca (Max)
    POW2 = "pow2"  # Orca (Pow2)
    ORACLE = "oracle"  # Orca (Oracle)
    FT = "ft"  # FasterTransformer


ORCA = {SpaceName.MAX: Estimate.MAX, SpaceName.POW2: Estimate.POW2, SpaceName.ORACLE: Estimate.ORACLE}


@dataclass(frozen=True, slots=True)
class Pool:
    """The memory of one server, in blocks."""

    server: Server
    block_size: int = 16
    max_model_len: int = 2048
    num_host_blocks: int = 0
    num_slots: int | None = None  # None: the server's (paper, Table 1)

    @property
    def num_blocks(self) -> int:
        """Device blocks."""
        return (self.num_slots or machine(self.server).num_kv_slots) // self.block_size


def make_space(name: SpaceName, pool: Pool, lengths_of: LengthsOf) -> MemorySpace:
    """An empty space. ``lengths_of`` is asked by those that reserve."""
    if name is SpaceName.PAGED:
        watermark_blocks = int(WATERMARK * pool.num_blocks)
        return BlockSpace.empty(PoolShape(pool.block_size, pool.num_blocks, pool.num_host_blocks, watermark_blocks))
    if name is SpaceName.FT:
        num_places = pool.num_blocks * pool.block_size // pool.max_model_len
        shape = StaticShape(pool.block_size, pool.num_blocks, pool.max_model_len, num_places)
        return StaticBatchSpace(shape, lengths_of)
    contiguous = ContiguousShape(pool.block_size, pool.num_blocks, pool.max_model_len, ORCA[name])
    return ContiguousSpace(contiguous, lengths_of)


def make_cost(name: SpaceName, pool: Pool) -> CostModel:
    """What steps on that space cost."""
    if name is SpaceName.PAGED:
        return paged_cost(pool.server, pool.block_size)
    if name is SpaceName.FT:
        return static_cost(pool.server, pool.block_size)
    return contiguous_cost(pool.server, pool.block_size)


def occupancy_of(space: MemorySpace) -> Occupancy:
    """Where the slots are. A paged space sets nothing aside but the rest of each last block, which is being filled."""
    if isinstance(space, BlockSpace):
        return _paged_occupancy(space)
    assert isinstance(space, ContiguousSpace | StaticBatchSpace)
    return space.occupancy()


def _paged_occupancy(space: BlockSpace) -> Occupancy:
    """Each used block counts once, whoever shares it; of a last block only what is written counts as filled."""
    block_size = space.shape.block_size
    empty_of: dict[int, int] = {}
    for table in space.device.by_id.values():
        if empty := len(table.blocks) * block_size - table.num_slots:
            last = table.blocks[-1]
            empty_of[last] = min(empty, empty_of.get(last, empty))
    used = space.usage.num_used_device_blocks * block_size
    empty = sum(empty_of.values())
    return Occupancy(space.shape.num_device_blocks * block_size, filled=used - empty, reserved=empty, internal=0)


def num_shared_slots(space: BlockSpace) -> int:
    """Filled slots that sequences see, less those that there are: of a block that three share, two times its slots."""
    return sum(table.num_slots for table in space.device.by_id.values()) - _paged_occupancy(space).filled
