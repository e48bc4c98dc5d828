"""An administrator's view of one small pool, without services."""

from dataclasses import dataclass, field

from scheduler import inspection as view
from scheduler.errors import Conflict, NotFound, RequestRefused

HASH = "ab" * 32
COUNTERS = view.PoolCounters(9, 1, 2, 1, 4, 4, 3, 5, 80, 20)
POOL = view.Pool("w0", 7, 9, 4, 8, 4, 3, 2, 1, 0, 1, 2, 0, 2, 10, 0, "kvmanager-a", COUNTERS)
BLOCKS = [view.Block("device", i, 1 if i < 3 else 0, [1] if i < 3 else [], 4, None, i, i == 2) for i in range(8)]
MAP = view.PoolMap(1, 8, [1, 1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0], [0] * 8, 9)
TABLE = view.SequenceTable(1, "device", 9, [view.TableEntry(0, 2, 1, HASH), view.TableEntry(1, 0, 1, None)], 9)
STEP = view.StepRecord(
    9, 1, 4, 2, 0, [3], [view.PreemptedGroup(2, "swap", "group 1 needs 1 blocks and 0 are free")],
    "", [(0, 1)], [], [], [5], 0, 3, 2, 0,
)  # fmt: skip


@dataclass
class PoolsDouble:
    calls: list[tuple] = field(default_factory=list)
    holders: list[int] = field(default_factory=list)
    error: Exception | None = None

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    async def pools(self):
        self._note("pools")
        return view.PoolList([POOL])

    async def map(self, pool_id, tier, num_cells):
        self._note("map", pool_id, tier, num_cells)
        return MAP

    async def blocks(self, pool_id, query):
        self._note("blocks", pool_id, query)
        page = [block for block in BLOCKS if block.block_id >= query.start][: query.limit]
        following = page[-1].block_id + 1 if page else len(BLOCKS)
        return view.BlockPage(page, following if following < len(BLOCKS) else None, 9)

    async def sequence(self, pool_id, sequence_id):
        self._note("sequence", pool_id, sequence_id)
        if sequence_id != 1:
            raise NotFound(f"sequence {sequence_id} has no block table")
        return TABLE

    async def tables(self, pool_id):
        return view.Tables(7, 9, {1: (2, 0)})

    async def sharing(self, pool_id, start, limit):
        self._note("sharing", pool_id, start, limit)
        return view.Sharing(6, 4, 1 / 3, BLOCKS[:1], None, 9)

    async def prefixes(self, pool_id, prefix_hash, start, limit):
        self._note("prefixes", pool_id, prefix_hash, start, limit)
        return view.PrefixPage([view.PrefixNode(HASH, None, 2, 1, True, 9)], 1, None, 9)

    async def steps(self, pool_id, count):
        self._note("steps", pool_id, count)
        return view.StepList([STEP])

    async def replay(self, pool_id, step_id, num_cells):
        self._note("replay", pool_id, step_id, num_cells)
        if step_id > 9:
            raise RequestRefused(f"step {step_id} has not been yet; the last one is 9")
        return view.Replay(2, 9, STEP, POOL, [TABLE], MAP)

    async def audit(self, pool_id):
        self._note("audit", pool_id)
        return view.Audit(pool_id, 9, 7, [], [], 12, 2)

    async def pins(self, pool_id):
        self._note("pins", pool_id)
        return view.PinList([view.Pin(HASH, 2, None)], 2, 2)

    async def pin(self, pool_id, prefix_hash, ttl_s):
        self._note("pin", pool_id, prefix_hash, ttl_s)
        return view.Pinned(prefix_hash.hex(), 2, 2, 2)

    async def unpin(self, pool_id, prefix_hash):
        self._note("unpin", pool_id, prefix_hash)
        return view.Unpinned(prefix_hash.hex(), 0)

    async def reset_prefix_cache(self, pool_id):
        self._note("reset", pool_id)
        if self.holders:
            raise Conflict(f"{len(self.holders)} sequences hold blocks: {self.holders}", code="pool_busy")
        return view.CacheReset(5, 1)

    async def close(self):
        pass


@dataclass
class AdministratorDouble:
    pools: PoolsDouble = field(default_factory=PoolsDouble)

    async def resolve(self, pool_id):
        if pool_id not in (None, POOL.pool_id):
            raise NotFound(f"pool is {pool_id!r}, but there are ['w0']")
        return POOL.pool_id

    async def audit(self, pool_id):
        return await self.pools.audit(pool_id)

    def live_requests(self):
        sequence = view.LiveSequence(1, 0, "running", 5, 4, 8)
        return view.RequestList([view.LiveRequest("cmpl-1-0", 1, 4, 2, [sequence])])

    def prefix_hash(self, token_ids, cache_salt):
        return (bytes(token_ids) + cache_salt.encode()).ljust(32, b"\0")[:32]
