"""Requests of random parameters, of which some end early, meet no defect and leave nothing behind.

``OCTAVO_SOAK_REQUESTS`` sets how many (5,000 at night), ``OCTAVO_SOAK_SEED`` which.
"""

import asyncio
import json
import os
from collections import Counter
from random import Random

import httpx
import pytest

from doubles.random_bodies import ALWAYS, BEAMS, CHAT, COMPLETION, CONSTRAINING, SHARED_FIELDS, random_call
from octavo.data_folder import DataFolder
from scheduler.api.chat_schemas import NOTHING, ChatCompletionRequest
from scheduler.api.schemas import CompletionRequest

NUM_REQUESTS = int(os.environ.get("OCTAVO_SOAK_REQUESTS", "150"))
SEED = int(os.environ.get("OCTAVO_SOAK_SEED", "4"))
CONCURRENCY = 16
MOST_TOKENS = 6
POOL = {
    "num_device_blocks": 20,
    "num_host_blocks": 16,
    "max_num_seqs": 12,
    "max_model_len": 256,
    "scheduling_policy": "priority",
    "max_waiting": 40,
}


def test_every_field_is_drawn():
    """A new field has to be added to ``random_bodies``."""
    for model, own in ((CompletionRequest, COMPLETION | BEAMS), (ChatCompletionRequest, CHAT)):
        ask_for_nothing = {name for name, field in model.model_fields.items() if NOTHING in field.metadata}
        known = SHARED_FIELDS.keys() | own.keys() | ALWAYS | CONSTRAINING | ask_for_nothing
        assert model.model_fields.keys() - known == set()


class Soak:
    """Sends calls and counts how they ended."""

    def __init__(self, client: httpx.AsyncClient, random: Random) -> None:
        self._client = client
        self._random = random
        self.ends: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    async def run(self, num_requests: int) -> None:
        calls = iter(range(num_requests))

        async def work() -> None:
            for _ in calls:
                await self._one()

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

    async def _one(self) -> None:
        path, body = random_call(self._random, MOST_TOKENS)
        patience_s = self._random.uniform(0, 2) if self._random.random() < 0.25 else 300
        if "request_id" in body and self._random.random() < 0.5:
            asyncio.get_running_loop().call_later(self._random.uniform(0, 2), self._end, body["request_id"])
        try:
            async with asyncio.timeout(patience_s):
                await self._call(path, body)
        except TimeoutError:
            assert patience_s < 300, f"no answer: {body}"
            self.ends["client gone"] += 1

    def _end(self, request_id: str) -> None:
        self._ending = asyncio.create_task(self._client.delete(f"/v1/requests/{request_id}"))

    async def _call(self, path: str, body: dict) -> None:
        async with self._client.stream("POST", path, json=body) as answer:
            text = (await answer.aread()).decode()
        self.ends[str(answer.status_code)] += 1
        assert answer.status_code in (200, 400, 429), (answer.status_code, text, body)
        assert '"code": "internal_error"' not in text, body
        if answer.status_code != 200:
            self.refusals[json.loads(text)["error"]["code"]] += 1
        elif body.get("stream"):
            assert text.endswith("data: [DONE]\n\n"), (text[-500:], body)
            assert '"error"' not in text, (text[-500:], body)


async def test_random_requests_and_disconnects_leave_an_idle_server(start_cluster):
    cluster = start_cluster(**POOL)
    admin = {"Authorization": f"Bearer {DataFolder(cluster.data_dir).read_admin_key()}"}
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=300) as client:
        soak = Soak(client, Random(SEED))
        await soak.run(NUM_REQUESTS)
        print(f"seed {SEED}: {dict(soak.ends)}, refused {dict(soak.refusals)}")  # noqa: T201 - pytest -s
        assert soak.ends["200"] >= NUM_REQUESTS / 2
        assert (await client.get("/ready")).json()["ready"] is True
        for _ in range(100):
            pool = (await client.get("/admin/v1/pools/default", headers=admin)).json()
            if not pool["num_sequences"]:
                break
            await asyncio.sleep(0.1)
        assert (pool["num_used_device_blocks"], pool["num_used_host_blocks"]) == (0, 0)
        assert (await client.get("/admin/v1/requests", headers=admin)).json()["requests"] == []
        print(f"preempted: {(cluster.data_dir / 'logs' / 'scheduler.log').read_text().count('gives way')}")  # noqa: T201
        audit = (await client.post("/admin/v1/audit", headers=admin, timeout=120)).json()
        assert audit["findings"] == []
        again = await client.post("/v1/completions", json={"prompt": "The capital of France is", "temperature": 0})
        assert "Paris" in again.json()["choices"][0]["text"]


if NUM_REQUESTS > 150:
    pytestmark = pytest.mark.timeout(60 + 2 * NUM_REQUESTS)
