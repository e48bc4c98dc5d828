"""The OpenAPI document is true: generated requests meet no defect and no answer that it does not describe.

Many requests go to the application over an engine with doubles for its peers, and few to a real cluster.
"""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from pydantic import TypeAdapter
from schemathesis import APIOperation, BaseSchema, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from doubles.administrator import AdministratorDouble
from doubles.chat import GrammarCompilerDouble, LineTemplate
from doubles.cluster import Cluster
from doubles.peers import LetterTokenizer
from scheduler.api.access import Access
from scheduler.api.answers import ChatCompletionChunk, CompletionChunk
from scheduler.api.app import create_app
from scheduler.api.chat_schemas import ChatCompletionRequest
from scheduler.api.completions import CompletionService
from scheduler.api.models import ServedModel
from scheduler.api.openapi import ErrorAnswer
from scheduler.api.server import StopSignals, listen, serve

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
TIMEOUT_S = 30.0
ADMIN = {"Authorization": "Bearer admin"}
CHUNK = TypeAdapter(CompletionChunk | ChatCompletionChunk | ErrorAnswer)
SELDOM = {
    "GET /v1/models/{model_id}",  # nobody guesses the model's name
    "DELETE /v1/requests/{request_id}",  # nor the id of a request in progress
    "GET /admin/v1/pools/{pool_id}",
    "GET /admin/v1/pools/{pool_id}/map",
    "GET /admin/v1/pools/{pool_id}/blocks",
    "GET /admin/v1/pools/{pool_id}/blocks/{block_id}",
}


def bounded(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


class AnyLetterTokenizer(LetterTokenizer):
    """Has a token for every character."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) % 95 for character in text]


async def _serve(ready: Future, stop: asyncio.Event) -> None:
    cluster = Cluster()
    await cluster.engine.start()
    await cluster.ready()
    service = CompletionService(
        cluster.engine, AnyLetterTokenizer(), ServedModel("letters", 1, "fp"), 2**20, GrammarCompilerDouble()
    )
    app = create_app(service, AdministratorDouble(), Access(admin_key="admin"), template=LineTemplate())
    listener, signals = listen("127.0.0.1", 0), StopSignals(stop=stop)
    ready.set_result((listener.getsockname()[1], asyncio.get_running_loop()))
    await serve(app, listener, cluster.engine, signals, drain_timeout_s=1)
    await cluster.engine.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The application in a thread of its own."""
    ready: Future = Future()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(ready, stop)))
    thread.start()
    port, loop = ready.result(TIMEOUT_S)
    yield f"http://127.0.0.1:{port}"
    loop.call_soon_threadsafe(stop.set)
    thread.join(TIMEOUT_S)


def check_operations(document: BaseSchema, max_examples: int) -> set[str]:
    """Sends fitting and unfitting requests to every operation; those that were carried out at least once."""
    operations = [result.ok() for result in document.get_all_operations()]
    return {
        operation.label
        for operation in operations
        if sum(num_carried_out(operation, mode, max_examples) for mode in GenerationMode)
    }


def num_carried_out(operation: APIOperation, mode: GenerationMode, max_examples: int) -> int:
    """Of the generated requests, those that were answered with 200."""
    statuses: list[int] = []

    @bounded(max_examples)
    @given(case=operation.as_strategy(generation_mode=mode))
    def answered_as_described(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body.pop("model", None)  # there is one, and no generated name is its
        response = case.call_and_validate(checks=CHECKS, headers=ADMIN, timeout=TIMEOUT_S)
        statuses.append(response.status_code)
        check_events(response)

    with contextlib.suppress(Unsatisfiable):  # nothing can be wrong about a route without parameters
        answered_as_described()
    return statuses.count(200)


def check_events(response: schemathesis.Response) -> None:
    """What schemathesis reads of a stream are the chunks that the document describes."""
    if not response.headers["content-type"][0].startswith("text/event-stream"):
        return
    events = [event.removeprefix("data: ") for event in response.content.decode().split("\n\n") if event]
    for event in events:
        assert event == "[DONE]" or CHUNK.validate_json(event)


def test_generated_requests_are_answered_as_described(address):
    document = schemathesis.openapi.from_url(f"{address}/openapi.json")
    carried_out = check_operations(document, max_examples=15)
    operations = {result.ok().label for result in document.get_all_operations()}
    assert operations - carried_out <= SELDOM


def test_a_real_cluster_answers_as_described(cluster):
    document = schemathesis.openapi.from_url(f"{cluster.base_url}/openapi.json")
    inference = document.include(path_regex="^/(v1|tokenize|detokenize|version|health|ready)")
    assert check_operations(inference, max_examples=3) >= {"GET /v1/models", "POST /tokenize", "POST /detokenize"}


def test_every_reference_of_the_document_leads_somewhere(address):
    document = httpx.get(f"{address}/openapi.json").json()
    references = set(re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)))
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    examples = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"][
        "examples"
    ]
    assert all(ChatCompletionRequest.model_validate(example["value"]) for example in examples.values())
