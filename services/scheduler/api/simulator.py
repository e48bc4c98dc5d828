"""The memory simulator's page. `octavo memory-simulator --html` makes the file that lies here."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

PAGE = Path(__file__).with_name("simulator.html")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


def simulator_router() -> APIRouter:
    """`GET /simulator`."""
    router = APIRouter(tags=["health"])
    text = PAGE.read_text(encoding="utf-8")

    @router.get("/simulator", response_class=HTMLResponse)
    async def simulator() -> HTMLResponse:
        """An interactive page: the same requests over contiguous and over paged memory."""
        return HTMLResponse(text, headers=HEADERS)

    return router
