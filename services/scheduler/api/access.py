"""Lets callers in by their keys, before anything of a request is read."""

import hmac
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.api.callers import CALLER, Caller
from scheduler.api.errors import ApiError, error_response
from scheduler.api.rate_limits import Meter
from scheduler.api.route_classes import RouteClass, class_of
from scheduler.core.keys import KeyClass, KeyEntry, Keyring, digest_of

SCHEME = b"bearer"
CLASS_OF_ROUTE = {RouteClass.INFERENCE: KeyClass.INFERENCE, RouteClass.ADMIN: KeyClass.ADMIN}


class Keys(Protocol):
    """Where keys are kept."""

    def keyring(self) -> Keyring | None:
        """All keys at this moment; ``None`` while they have not been read yet."""


class Access:
    """Who may call what. Without ``keys`` inference is open; without any admin key administration is closed."""

    def __init__(self, keys: Keys | None = None, admin_key: str | None = None) -> None:
        self._keys = keys
        self._admin_digest = None if admin_key is None else digest_of(admin_key.encode())
        self._meters: dict[str, Meter] = {}

    def admit(self, route: RouteClass, key: bytes) -> Caller:
        """Who calls with ``key``. Raises ``ApiError`` 401, 403 or 429, which never shows the key."""
        if route is RouteClass.PUBLIC or (route is RouteClass.INFERENCE and self._keys is None):
            return Caller()
        keyring = Keyring() if self._keys is None else self._keys.keyring()
        if keyring is None:
            raise _not_read_yet()
        if route is RouteClass.ADMIN and self._admin_digest is None and not keyring.opens_admin:
            raise _switched_off()
        key_class, entry = self._recognize(key, keyring)
        if key_class is None:
            raise _unknown(route)
        if key_class is not CLASS_OF_ROUTE[route]:
            raise _wrong_class(route, key_class)
        return Caller() if entry is None else self._caller(entry)

    def _recognize(self, key: bytes, keyring: Keyring) -> tuple[KeyClass | None, KeyEntry | None]:
        if self._admin_digest is not None and hmac.compare_digest(digest_of(key), self._admin_digest):
            return KeyClass.ADMIN, None
        entry = keyring.find(key)
        return (None, None) if entry is None else (entry.key_class, entry)

    def _caller(self, entry: KeyEntry) -> Caller:
        meter = self._meter(entry)
        if meter is not None:
            meter.count_request()
        return Caller(entry.tenant, meter)

    def _meter(self, entry: KeyEntry) -> Meter | None:
        if entry.requests_per_minute is None and entry.tokens_per_minute is None:
            return None
        meter = self._meters.get(entry.key_id)
        if meter is None or not meter.is_of(entry):
            meter = self._meters[entry.key_id] = Meter.of(entry)
        return meter


class Gate:
    """Middleware in front of all routes; what it lets pass runs with its ``CALLER``."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself whom it does not let pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = self._access.admit(class_of(scope["path"]), bearer_key(scope))
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        token = CALLER.set(caller)
        try:
            await self._app(scope, receive, send if caller.meter is None else _with_headers(send, caller.meter))
        finally:
            CALLER.reset(token)


def bearer_key(scope: Scope) -> bytes:
    """The key of ``Authorization: Bearer KEY``; empty where there is none."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            return bytes(key.strip()) if scheme.lower() == SCHEME else b""
    return b""


def _with_headers(send: Send, meter: Meter) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            headers |= {name.encode(): value.encode() for name, value in meter.headers().items()}
            message = {**message, "headers": list(headers.items())}
        await send(message)

    return send_with_headers


def _not_read_yet() -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the keys have not been read yet: the scheduler waits for the Redis that holds them",
        kind="server_error",
        code="keys_unavailable",
        headers={"Retry-After": "1"},
    )


def _switched_off() -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        "administration is switched off: start the scheduler with OCTAVO_ADMIN_KEY or --admin-key, "
        "or create a key of the class admin",
        kind="permission_error",
        code="no_admin_key",
    )


def _unknown(route: RouteClass) -> ApiError:
    what = "admin key" if route is RouteClass.ADMIN else "API key"
    return ApiError(
        HTTPStatus.UNAUTHORIZED,
        f"the {what} is missing or wrong: send it as 'Authorization: Bearer KEY'",
        kind="authentication_error",
        code="invalid_admin_key" if route is RouteClass.ADMIN else "invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _wrong_class(route: RouteClass, key_class: KeyClass) -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        f"the key is of the class {key_class.value}, but this path is for keys of the class "
        f"{CLASS_OF_ROUTE[route].value}",
        kind="permission_error",
        code="wrong_key_class",
    )
