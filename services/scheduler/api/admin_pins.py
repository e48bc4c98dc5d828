"""Admin commands on the prefix cache: pins and reset."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, ValidationError

from scheduler import inspection as view
from scheduler.api.body import read_json_object
from scheduler.api.errors import invalid
from scheduler.api.validation import StrictModel, as_api_error
from scheduler.core.tenants import tenant_salt
from scheduler.inspection import Administrator
from scheduler.ports import Tokenizer

MAX_TTL_S = 10 * 365 * 86400
MAX_TOKEN_ID = 2**31 - 1

PoolQuery = Annotated[str | None, Query(description="A worker's id. Default: the only pool.")]


class PrefixName(StrictModel):
    """A prefix, by the hash of its last block or by a prompt that begins with it."""

    hash: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    prompt: str | list[Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]] | None = None
    cache_salt: str = Field(default="", description="As in the requests that are to hit it.")
    tenant: str = Field(default="", description="Whose requests are to hit it, where inference needs a key.")


class PinBody(PrefixName):
    """What to pin, and for how long."""

    ttl_s: float = Field(default=0, ge=0, le=MAX_TTL_S, description="Seconds; 0: until it is unpinned.")


@dataclass(frozen=True, slots=True)
class PinService:
    """What names of prefixes are read with."""

    tokenizer: Tokenizer
    max_body_bytes: int

    async def read(self, request: Request, model: type[PrefixName]) -> Any:  # noqa: ANN401 - an instance of model
        """The body as ``model``. Raises ``ApiError`` that names the field."""
        body = await read_json_object(request, self.max_body_bytes)
        try:
            name = model.model_validate({field: value for field, value in body.items() if value is not None})
        except ValidationError as error:
            raise as_api_error(error.errors(include_url=False)[0]) from None
        if (name.hash is None) == (name.prompt is None):
            raise invalid("either hash or prompt is required, and not both", param="hash")
        return name

    async def hash_of(self, name: PrefixName, admin: Administrator) -> bytes:
        """The hash that a name stands for."""
        if name.hash is not None:
            return bytes.fromhex(name.hash)
        token_ids = name.prompt or []
        if isinstance(token_ids, str):
            token_ids = await asyncio.to_thread(self.tokenizer.encode, token_ids)
        return admin.prefix_hash(token_ids, tenant_salt(name.tenant, name.cache_salt))


def _body_of(model: type[PrefixName]) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"content": content, "required": True}}


def pins_router(admin: Administrator, service: PinService) -> APIRouter:
    """`/pins` and `/prefix-cache/reset`, described in the OpenAPI document by the models that validate them."""
    router, pools = APIRouter(), admin.pools

    @router.get("/pins")
    async def list_pins(pool: PoolQuery = None) -> view.PinList:
        return await pools.pins(await admin.resolve(pool))

    @router.post("/pins", openapi_extra=_body_of(PinBody))
    async def pin(request: Request, pool: PoolQuery = None) -> view.Pinned:
        body: PinBody = await service.read(request, PinBody)
        return await pools.pin(await admin.resolve(pool), await service.hash_of(body, admin), body.ttl_s)

    @router.delete("/pins", openapi_extra=_body_of(PrefixName))
    async def unpin(request: Request, pool: PoolQuery = None) -> view.Unpinned:
        body: PrefixName = await service.read(request, PrefixName)
        return await pools.unpin(await admin.resolve(pool), await service.hash_of(body, admin))

    @router.post("/prefix-cache/reset")
    async def reset(pool: PoolQuery = None) -> view.CacheReset:
        return await pools.reset_prefix_cache(await admin.resolve(pool))

    return router
