"""One run: a workload against a server, from writing the prompts to the figures."""

from collections.abc import Callable

import aiohttp

from octavo.bench.client import CompletionsClient
from octavo.bench.gauges import GaugeReader
from octavo.bench.load import Clock, OnEnd, send_all
from octavo.bench.loads import LoadOptions, make_workload
from octavo.bench.prompts import CORPUS, PromptWriter, Words
from octavo.bench.results import RunResult
from octavo.bench.server import Server
from octavo.bench.summary import Objectives, summarize
from octavo.bench.tokenizers import open_tokenizer
from octavo.bench.workload import Workload
from octavo.errors import BenchFailed

WARM_UP_SEED = -1
WARM_UP_LENGTHS = (128, 16)  # tokens in and out


def prompt_writer(server: Server, tokenizer: str | None, seed: int) -> tuple[PromptWriter, str]:
    """Who writes the prompts, and as what they are sent: token ids, text of known tokens, or words.

    Token ids are exact; text may merge tokens where passages meet, and words are counted in words. What a server
    counts itself is always preferred in the figures.
    """
    if server.takes_token_ids:
        return PromptWriter(server.corpus, seed), "token ids"
    text = CORPUS.read_text()
    if tokenizer is None:
        words = Words(text)
        return PromptWriter(words.encode(text), seed, words.decode), "words"
    other = open_tokenizer(tokenizer)
    return PromptWriter(other.encode(text), seed, other.decode), "text"


class Bench:
    """Runs workloads against one server."""

    def __init__(
        self, session: aiohttp.ClientSession, server: Server, tokenizer: str | None, gauges: GaugeReader
    ) -> None:
        self._session = session
        self._server = server
        self._tokenizer = tokenizer
        self._gauges = gauges

    async def run(
        self, options: LoadOptions, objectives: Objectives, on_start: Callable[[Workload], None], on_end: OnEnd
    ) -> RunResult:
        """Sends the whole workload. Raises ``BenchFailed`` if none of it fits the server."""
        whole = make_workload(options)
        workload = whole if self._server.max_model_len is None else whole.within(self._server.max_model_len)
        if not workload.shapes:
            raise BenchFailed(
                f"no request of {whole.name} fits: all have more tokens than {self._server.max_model_len}, "
                "the server's longest sequence"
            )
        writer, written_as = prompt_writer(self._server, self._tokenizer, options.seed)
        prompts = [writer.write(shape) for shape in workload.shapes]
        clock = Clock()
        client = CompletionsClient(self._session, self._server, clock)
        on_start(workload)
        async with self._gauges.watching() as gauges:
            records = await send_all(workload, prompts, client.complete, clock, on_end)
        return RunResult(
            url=self._server.url,
            model=self._server.model,
            workload=workload.name,
            seed=options.seed,
            rate=options.rate,
            max_concurrency=workload.max_concurrency,
            num_skipped=len(whole.shapes) - len(workload.shapes),
            prompts=written_as,
            summary=summarize(records, objectives),
            gauges=gauges.result(),
            records=tuple(records),
        )

    async def warm_up(self, num_requests: int) -> None:
        """Sends a few requests that no figure counts, with text that no run uses."""
        options = LoadOptions(lengths=WARM_UP_LENGTHS, num_requests=num_requests, max_concurrency=1, seed=WARM_UP_SEED)
        workload = make_workload(options)
        writer, _ = prompt_writer(self._server, self._tokenizer, options.seed)
        clock = Clock()
        client = CompletionsClient(self._session, self._server, clock)
        prompts = [writer.write(shape) for shape in workload.shapes]
        await send_all(workload, prompts, client.complete, clock, lambda _: None)
