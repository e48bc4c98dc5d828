"""Who may administer: whoever sends the admin key."""

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from fastapi import Request

from scheduler.api.errors import ApiError

SCHEME = "Bearer "


def require_admin_key(admin_key: str | None) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets only requests with ``Authorization: Bearer <admin key>`` pass.

    403 where no key is configured, 401 for a wrong or missing one.
    """

    async def check(request: Request) -> None:
        if admin_key is None:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "administration is switched off: start the scheduler with OCTAVO_ADMIN_KEY or --admin-key",
                kind="permission_error",
                code="no_admin_key",
            )
        given = request.headers.get("authorization", "")
        is_right = hmac.compare_digest(given.removeprefix(SCHEME).encode(), admin_key.encode())
        if not (given.startswith(SCHEME) and is_right):
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "the admin key is missing or wrong: send it as 'Authorization: Bearer KEY'",
                kind="authentication_error",
                code="invalid_admin_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return check
