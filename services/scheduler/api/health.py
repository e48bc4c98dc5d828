"""Whether the process lives, and whether tokens can advance."""

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from scheduler.api.answers import HealthAnswer, ReadyAnswer
from scheduler.ports import Generator


def health_router(generator: Generator) -> APIRouter:
    """`GET /health` and `GET /ready`."""
    router = APIRouter(tags=["health"])

    @router.get("/health", responses={200: {"model": HealthAnswer}})
    async def health() -> JSONResponse:
        """Whether the process lives."""
        return JSONResponse({"status": "ok"})

    @router.get("/ready", responses={200: {"model": ReadyAnswer}, 503: {"model": ReadyAnswer}})
    async def ready() -> JSONResponse:
        """Whether tokens can advance."""
        readiness = generator.readiness
        status = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"ready": readiness.ready, "reason": readiness.reason}, status)

    return router
