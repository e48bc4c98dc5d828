"""What Prometheus reads."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import Response

CONTENT_TYPE = "text/plain"

MetricsPage = Callable[[], Awaitable[bytes]]
"""Makes the page, in Prometheus' text format."""


async def nothing_measured() -> bytes:
    """The page of an application that measures nothing."""
    return b""


def metrics_router(page: MetricsPage) -> APIRouter:
    """`GET /metrics`."""
    router = APIRouter(tags=["health"])
    text = {"description": "In Prometheus' text format.", "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}

    @router.get("/metrics", response_class=Response, responses={200: text})
    async def metrics() -> Response:
        """Requests, tokens, steps and pools in numbers."""
        return Response(await page(), media_type=f"{CONTENT_TYPE}; version=0.0.4; charset=utf-8")

    return router
