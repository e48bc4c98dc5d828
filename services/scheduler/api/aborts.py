"""`DELETE /v1/requests/{request_id}`: ends a call in progress."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from scheduler.api.callers import CallerGenerator
from scheduler.errors import NotFound


class Aborted(BaseModel):
    """What was ended. Its reader gets ``finish_reason: "abort"`` for every choice that had not ended."""

    id: str = Field(description="As it was asked for.")
    aborted: bool = True


def aborts_router(generator: CallerGenerator) -> APIRouter:
    """The route. Callers end only what their own tenant asked for."""
    router = APIRouter(tags=["completions"])

    @router.delete("/v1/requests/{request_id}")
    async def abort_request(request_id: str) -> Aborted:
        """Ends a call by its `id`: that of its answer, which is the `request_id` if one was given."""
        if not generator.abort_call(request_id):
            raise NotFound(f"request_id is {request_id!r}, but no such request is in progress")
        return Aborted(id=request_id)

    return router
