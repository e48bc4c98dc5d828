"""Who may call what: each route has a class, and a route without one keeps the server from starting."""

from collections.abc import Mapping, Sequence
from enum import Enum

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, compile_path


class RouteClass(Enum):
    """Which key a route wants."""

    PUBLIC = "public"  # none
    INFERENCE = "inference"  # a caller's, where keys are configured
    ADMIN = "admin"  # an administrator's, always


ADMIN_PREFIX = "/admin/"

ROUTE_CLASSES: Mapping[str, RouteClass] = {
    "/health": RouteClass.PUBLIC,
    "/ready": RouteClass.PUBLIC,
    "/metrics": RouteClass.PUBLIC,
    "/simulator": RouteClass.PUBLIC,
    "/version": RouteClass.PUBLIC,
    "/openapi.json": RouteClass.PUBLIC,
    "/v1/completions": RouteClass.INFERENCE,
    "/v1/chat/completions": RouteClass.INFERENCE,
    "/v1/requests/{request_id}": RouteClass.INFERENCE,
    "/v1/models": RouteClass.INFERENCE,
    "/v1/models/{model_id:path}": RouteClass.INFERENCE,
    "/tokenize": RouteClass.INFERENCE,
    "/detokenize": RouteClass.INFERENCE,
    "/admin/v1/audit": RouteClass.ADMIN,
    "/admin/v1/pins": RouteClass.ADMIN,
    "/admin/v1/pools": RouteClass.ADMIN,
    "/admin/v1/pools/{pool_id}": RouteClass.ADMIN,
    "/admin/v1/pools/{pool_id}/blocks": RouteClass.ADMIN,
    "/admin/v1/pools/{pool_id}/blocks/{block_id}": RouteClass.ADMIN,
    "/admin/v1/pools/{pool_id}/map": RouteClass.ADMIN,
    "/admin/v1/prefix-cache/reset": RouteClass.ADMIN,
    "/admin/v1/prefixes": RouteClass.ADMIN,
    "/admin/v1/replay": RouteClass.ADMIN,
    "/admin/v1/requests": RouteClass.ADMIN,
    "/admin/v1/sequences/{sequence_id}": RouteClass.ADMIN,
    "/admin/v1/sharing": RouteClass.ADMIN,
    "/admin/v1/steps": RouteClass.ADMIN,
}


_FIXED = {path: known for path, known in ROUTE_CLASSES.items() if "{" not in path}
_PATTERNS = [(compile_path(path)[0], known) for path, known in ROUTE_CLASSES.items() if "{" in path]


def class_of(path: str) -> RouteClass:
    """The class of the route that answers ``path``; where none does, anybody may be told so."""
    if path.startswith(ADMIN_PREFIX):
        return RouteClass.ADMIN
    if (known := _FIXED.get(path)) is not None:
        return known
    return next((known for pattern, known in _PATTERNS if pattern.match(path)), RouteClass.PUBLIC)


def require_classes(routes: Sequence[BaseRoute]) -> None:
    """Raises ``LookupError`` for the first route that is not in the table."""
    for path in paths_of(routes):
        if path not in ROUTE_CLASSES:
            raise LookupError(f"{path} has no class: name it in ROUTE_CLASSES")


def paths_of(routes: Sequence[BaseRoute]) -> list[str]:
    """The path of every route, with its parameters in braces."""
    return [str(context.path) for context in iter_route_contexts(routes)]
