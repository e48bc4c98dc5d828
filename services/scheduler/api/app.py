"""The ASGI application."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from scheduler.api.aborts import aborts_router
from scheduler.api.access import Access, Gate
from scheduler.api.admin import admin_router
from scheduler.api.admin_pins import PinService
from scheduler.api.answers import ChatCompletionChunk, CompletionChunk
from scheduler.api.callers import CallerGenerator
from scheduler.api.chat import ChatService, chat_router
from scheduler.api.completions import CompletionService, completions_router
from scheduler.api.errors import install_error_handlers
from scheduler.api.health import health_router
from scheduler.api.metrics import MetricsPage, metrics_router, nothing_measured
from scheduler.api.models import models_router
from scheduler.api.open_requests import OpenRequests
from scheduler.api.openapi import install_openapi
from scheduler.api.route_classes import require_classes
from scheduler.api.simulator import simulator_router
from scheduler.api.tokenization import TokenizationService, tokenization_router
from scheduler.inspection import Administrator
from scheduler.ports import ChatTemplate


def create_app(
    service: CompletionService,
    admin: Administrator,
    access: Access | None = None,
    template: ChatTemplate | None = None,
    metrics: MetricsPage = nothing_measured,
) -> FastAPI:
    """All routes over one service, behind one gate. The OpenAPI document is at `/openapi.json`."""
    generator = CallerGenerator(service.generator, OpenRequests())
    service = replace(service, generator=generator)
    app = FastAPI(title="Octavo", version=octavo_version(), docs_url=None, redoc_url=None, redirect_slashes=False)
    install_error_handlers(app)
    app.include_router(completions_router(service))
    app.include_router(chat_router(ChatService(service, template)))
    app.include_router(tokenization_router(TokenizationService(service, template), app.version))
    app.include_router(models_router(service.model))
    app.include_router(health_router(service.generator))
    app.include_router(metrics_router(metrics))
    app.include_router(simulator_router())
    app.include_router(aborts_router(generator))
    app.include_router(admin_router(admin, PinService(service.tokenizer, service.max_body_bytes)))
    require_classes(app.routes)
    app.add_middleware(Gate, access=access or Access())
    install_openapi(app, CompletionChunk, ChatCompletionChunk)
    return app


def octavo_version() -> str:
    """The installed version, or "source" where only the source tree is on the path."""
    try:
        return version("octavo")
    except PackageNotFoundError:
        return "source"
