"""A small client of the admin API."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import httpx

from octavo.errors import AdminRefused

TIMEOUT_S = 150.0

Params = Mapping[str, str | int | None]


class AdminClient:
    """Asks the admin API at ``base_url``. Every failure is an ``AdminRefused`` with the API's own message."""

    def __init__(self, base_url: str, admin_key: str) -> None:
        headers = {"Authorization": f"Bearer {admin_key}"}
        self._client = httpx.Client(
            base_url=f"{base_url.rstrip('/')}/admin/v1", headers=headers, timeout=TIMEOUT_S, trust_env=False
        )

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, **params: str | int | None) -> dict[str, Any]:
        """The answer to a question; parameters that are ``None`` are left out."""
        return self._ask("GET", path, params)

    def post(self, path: str, **params: str | int | None) -> dict[str, Any]:
        """The answer to a command."""
        return self._ask("POST", path, params)

    def pages(self, path: str, field: str, **params: str | int | None) -> Iterator[dict[str, Any]]:
        """All entries of a paged answer, one after the other."""
        start: int | None = 0
        while start is not None:
            page = self.get(path, start=start, limit=1000, **params)
            yield from page[field]
            start = page["next_start"]

    def _ask(self, method: str, path: str, params: Params) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        try:
            answer = self._client.request(method, path, params=given)
        except httpx.HTTPError as fault:
            raise AdminRefused(f"{self._client.base_url}: {fault or type(fault).__name__}") from fault
        if not answer.is_success:
            raise AdminRefused(_message(answer))
        body: dict[str, Any] = answer.json()
        return body


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}: {answer.text[:500]}"
