"""The served model, by the names that requests may use."""

from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from scheduler.api.answers import ModelCard, ModelList
from scheduler.api.errors import ApiError

ALIAS = "default"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``created`` in seconds since 1970; ``fingerprint`` changes with the model's files and the server's version."""

    name: str
    created: int
    fingerprint: str

    def require(self, name: str | None) -> None:
        """Raises ``ApiError`` 404 unless ``name`` is the served name, the alias or absent."""
        if name not in (None, ALIAS, self.name):
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                f"model is {name!r}, but served is {self.name!r} (also as {ALIAS!r})",
                param="model",
                code="model_not_found",
            )

    def card(self) -> dict[str, str | int]:
        """OpenAI's model object."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "octavo"}


def models_router(model: ServedModel) -> APIRouter:
    """`GET /v1/models` and `GET /v1/models/{id}`."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models", responses={200: {"model": ModelList}})
    async def list_models() -> JSONResponse:
        """The served model, in a list."""
        return JSONResponse({"object": "list", "data": [model.card()]})

    @router.get("/v1/models/{model_id:path}", responses={200: {"model": ModelCard}})
    async def get_model(model_id: str) -> JSONResponse:
        """The served model."""
        model.require(model_id)
        return JSONResponse(model.card())

    return router
