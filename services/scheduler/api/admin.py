"""`/admin/v1/`: looking into the pools, and the few commands of an administrator."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from scheduler import inspection as view
from scheduler.api.admin_pins import PinService, pins_router
from scheduler.errors import NotFound
from scheduler.inspection import Administrator

MAX_ID = 2**32 - 1
DEFAULT_POOL = "default"

PoolId = Annotated[str, Path(description="A worker's id, or `default` for the only pool.")]
PoolQuery = Annotated[str | None, Query(description="A worker's id. Default: the only pool.")]
Start = Annotated[int, Query(ge=0, le=MAX_ID, description="First block id to look at.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most entries of a page.")]
Cells = Annotated[int, Query(ge=1, le=4096, description="Cells of the map.")]
Tier = Annotated[view.TierName, Query()]


def admin_router(admin: Administrator, pins: PinService) -> APIRouter:
    """All admin routes."""
    router = APIRouter(prefix="/admin/v1", tags=["admin"])
    router.include_router(_pools_router(admin))
    router.include_router(_sequences_router(admin))
    router.include_router(_steps_router(admin))
    router.include_router(pins_router(admin, pins))
    return router


def _pools_router(admin: Administrator) -> APIRouter:
    router, pools = APIRouter(), admin.pools

    async def resolve(pool_id: str) -> str:
        return await admin.resolve(None if pool_id == DEFAULT_POOL else pool_id)

    @router.get("/pools")
    async def list_pools() -> view.PoolList:
        return await pools.pools()

    @router.get("/pools/{pool_id}")
    async def get_pool(pool_id: PoolId) -> view.Pool:
        wanted = await resolve(pool_id)
        return next(pool for pool in (await pools.pools()).pools if pool.pool_id == wanted)

    @router.get("/pools/{pool_id}/map")
    async def get_map(pool_id: PoolId, tier: Tier = "device", num_cells: Cells = 1024) -> view.PoolMap:
        return await pools.map(await resolve(pool_id), tier, num_cells)

    @router.get("/pools/{pool_id}/blocks")
    async def list_blocks(
        pool_id: PoolId,
        tier: Tier = "device",
        state: Annotated[view.StateName | None, Query()] = None,
        holder: Annotated[int | None, Query(ge=1, lt=2**64, description="A sequence id.")] = None,
        start: Start = 0,
        limit: Limit = 100,
    ) -> view.BlockPage:
        return await pools.blocks(await resolve(pool_id), view.BlockQuery(tier, state, holder, start, limit))

    @router.get("/pools/{pool_id}/blocks/{block_id}")
    async def get_block(
        pool_id: PoolId, block_id: Annotated[int, Path(ge=0, le=MAX_ID)], tier: Tier = "device"
    ) -> view.Block:
        page = await pools.blocks(await resolve(pool_id), view.BlockQuery(tier, start=block_id, limit=1))
        if not page.blocks:
            raise NotFound(f"block_id is {block_id}, which the {tier} pool does not have")
        return page.blocks[0]

    return router


def _sequences_router(admin: Administrator) -> APIRouter:
    router, pools = APIRouter(), admin.pools

    @router.get("/requests")
    async def list_requests() -> view.RequestList:
        return admin.live_requests()

    @router.get("/sequences/{sequence_id}")
    async def get_sequence(
        sequence_id: Annotated[int, Path(ge=1, lt=2**64)], pool: PoolQuery = None
    ) -> view.SequenceTable:
        return await pools.sequence(await admin.resolve(pool), sequence_id)

    @router.get("/sharing")
    async def list_sharing(pool: PoolQuery = None, start: Start = 0, limit: Limit = 100) -> view.Sharing:
        return await pools.sharing(await admin.resolve(pool), start, limit)

    @router.get("/prefixes")
    async def list_prefixes(
        pool: PoolQuery = None,
        hash: Annotated[  # noqa: A002 - the name is the API's
            str, Query(pattern="^([0-9a-f]{64})?$", description="Only the chain that ends with this hash.")
        ] = "",
        start: Start = 0,
        limit: Limit = 100,
    ) -> view.PrefixPage:
        return await pools.prefixes(await admin.resolve(pool), bytes.fromhex(hash), start, limit)

    return router


def _steps_router(admin: Administrator) -> APIRouter:
    router, pools = APIRouter(), admin.pools

    @router.get("/steps")
    async def list_steps(
        pool: PoolQuery = None, count: Annotated[int, Query(ge=1, le=256, description="Newest first.")] = 20
    ) -> view.StepList:
        return await pools.steps(await admin.resolve(pool), count)

    @router.get("/replay")
    async def replay(
        pool: PoolQuery = None,
        step: Annotated[int, Query(ge=0, lt=2**64, description="0: the last.")] = 0,
        num_cells: Cells = 1024,
    ) -> view.Replay:
        return await pools.replay(await admin.resolve(pool), step, num_cells)

    @router.post("/audit")
    async def audit(_request: Request, pool: PoolQuery = None) -> view.Audit:
        return await admin.audit(await admin.resolve(pool))

    return router
