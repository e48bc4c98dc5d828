"""A private cluster with one of the paper's memory spaces, and runs on it."""

import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import aiohttp
from rich.console import Console

from octavo.admin_client import AdminClient
from octavo.bench.client import CompletionsClient
from octavo.bench.load import Clock, send_all
from octavo.bench.private_cluster import PrivateCluster, altered_cluster
from octavo.bench.prompts import CORPUS, PromptWriter
from octavo.bench.server import Server, discover, open_session
from octavo.bench.summary import Summary, summarize
from octavo.bench.workload import Workload
from octavo.errors import BenchFailed
from octavo.live.loads import known_outputs
from octavo.live.samples import Looker, Samples, baseline_looker, paged_looker, sampling
from octavo.services import Service
from octavo.settings import ClusterSettings
from octavo.simulation.lengths import Length
from octavo.simulation.spaces import SpaceName

PREEMPTIONS = re.compile(r"^octavo_preemptions_total\{[^}]*\} (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerWithFields(Server):
    """Every request has the fields ``more`` besides."""

    more: Mapping[str, object] = field(default_factory=dict)

    def body(self, prompt: str | list[int], num_tokens: int) -> dict[str, object]:
        """As usual, with them; ``None`` takes a usual one away."""
        body = {**super(ServerWithFields, self).body(prompt, num_tokens), **self.more}
        return {name: value for name, value in body.items() if value is not None}


def with_fields(server: Server, more: Mapping[str, object]) -> ServerWithFields:
    """The same server, asked for more."""
    known = {each.name: getattr(server, each.name) for each in fields(Server)}
    return ServerWithFields(**known, more=more)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one run."""

    summary: Summary
    samples: Samples

    @property
    def normalized_s(self) -> float:
        """End-to-end latency over output tokens, the mean over requests (paper §6.1)."""
        assert self.summary.normalized is not None, "checked when the run ended"
        return self.summary.normalized.mean


class LiveCluster:
    """Sends workloads and watches the memory meanwhile."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, look: Looker) -> None:
        self._session = session
        self._server = server
        self._look = look
        self._num_texts = 0

    async def run(
        self, workload: Workload, more: Mapping[str, object] | None = None, *, has_new_text: bool = True
    ) -> Measured:
        """Sends a workload, whose requests have the fields ``more`` besides.

        Without ``has_new_text`` passages read as in the run before. Raises ``BenchFailed`` if a request fails.
        """
        self._num_texts += has_new_text
        clock = Clock()
        writer = PromptWriter(self._server.corpus, seed=self._num_texts)
        prompts = [writer.write(shape) for shape in workload.shapes]
        client = CompletionsClient(self._session, with_fields(self._server, more or {}), clock)
        async with sampling(self._session, self._look) as samples:
            records = await send_all(workload, prompts, client.complete, clock, lambda _: None)
        if errors := [record.error for record in records if record.error]:
            raise BenchFailed(f"{workload.name}: {len(errors)} of {len(records)} requests failed: {errors[0]}")
        return Measured(summarize(records), samples)

    async def num_preemptions(self) -> int:
        """Requests that gave way, since the cluster started."""
        async with self._session.get("/metrics") as answer:
            return int(sum(float(count) for count in PREEMPTIONS.findall(await answer.text())))


@asynccontextmanager
async def live_cluster(
    settings: ClusterSettings, space: SpaceName, lengths: Sequence[Length], console: Console
) -> AsyncIterator[LiveCluster]:
    """Starts it. ``settings`` must say the block size, the number of device blocks and the longest sequence.

    ``lengths`` are what an oracle is told of the requests to come. Raises ``OctavoError``.
    """
    with tempfile.TemporaryDirectory(prefix="octavo-live-") as root:
        occupancy = Path(root) / "occupancy.json"
        if space is SpaceName.PAGED:
            async with altered_cluster(settings, console, lambda service: service) as cluster, _opened(cluster) as it:
                with AdminClient(cluster.base_url, cluster.admin_key) as admin:
                    yield LiveCluster(*it, _paged_looker(settings, admin))
            return
        outputs = Path(root) / "outputs.json"
        outputs.write_text(json.dumps(known_outputs(lengths)))
        words: dict[str, object] = {"estimate": space.value, "max-model-len": settings.max_model_len}
        words |= {"outputs": outputs, "occupancy": occupancy}

        def alter(service: Service) -> Service:
            return _baseline(service, words) if service.name == "kvmanager" else service

        async with altered_cluster(settings, console, alter) as cluster, _opened(cluster) as it:
            yield LiveCluster(*it, baseline_looker(occupancy))


@asynccontextmanager
async def _opened(cluster: PrivateCluster) -> AsyncIterator[tuple[aiohttp.ClientSession, Server]]:
    async with open_session(cluster.base_url, None) as session:
        server = await discover(session, cluster.base_url, None, CORPUS.read_text())
        if not server.takes_token_ids:
            raise BenchFailed(f"{cluster.base_url} takes no token ids, so prompts would not be exactly as long as said")
        yield session, server


def _paged_looker(settings: ClusterSettings, admin: AdminClient) -> Looker:
    assert settings.num_device_blocks is not None, "a pool that binds is chosen"
    return paged_looker(admin, settings.num_device_blocks * settings.block_size, settings.block_size)


def _baseline(kvmanager: Service, words: Mapping[str, object]) -> Service:
    flags = [
        word for name, value in {"listen": kvmanager.address, **words}.items() for word in (f"--{name}", str(value))
    ]
    return replace(kvmanager, command=(sys.executable, "-m", "kvmanager.baseline", *flags))
