"""docs/api.md names every route and every field."""

import re
from pathlib import Path

import pytest

from doubles.administrator import AdministratorDouble
from scheduler.api.app import create_app
from scheduler.api.chat_schemas import ChatCompletionRequest
from scheduler.api.schemas import CompletionRequest

PAGE = (Path(__file__).parents[4] / "docs/api.md").read_text()
ROUTES = PAGE.partition("## Routes")[2].partition("## Fields")[0]
FIELDS = PAGE.partition("## Fields")[2].partition("## Chats")[0]
FIRST_CELLS = "".join(re.findall(r"^\|([^|]*)\|", FIELDS, re.MULTILINE))
MARKED = re.findall(r"`([a-z_]+)`(?: \(([cm])\))?", FIRST_CELLS)


@pytest.mark.parametrize(("model", "mark"), [(CompletionRequest, "c"), (ChatCompletionRequest, "m")])
def test_every_field_is_named_for_the_route_that_has_it(model, mark):
    named = {name for name, marked in MARKED if marked in (mark, "")}
    assert named == set(model.model_fields)


def test_every_route_is_named(service):
    paths = create_app(service, AdministratorDouble()).openapi()["paths"]
    named = set(re.findall(r"`(?:GET|POST|DELETE) ([^` ]+)`", ROUTES))
    assert named == {path for path in paths if not path.startswith("/admin/")}
