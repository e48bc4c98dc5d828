"""Whether the process lives, and whether tokens can advance."""

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from scheduler.ports import Generator


def health_router(generator: Generator) -> APIRouter:
    """`GET /health` and `GET /ready`."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> JSONResponse:
        readiness = generator.readiness
        status = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"ready": readiness.ready, "reason": readiness.reason}, status)

    return router
