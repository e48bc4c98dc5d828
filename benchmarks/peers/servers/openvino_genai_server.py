"""OpenVINO GenAI's continuous batching behind as much of OpenAI's API as `octavo bench` asks for.

``python openvino_genai_server.py MODEL.gguf PORT THREADS MAX_SEQS``. Runs in an environment of its own. The pipeline
steps in a thread; tokens go to the streams of their requests. Text is not detokenized while it streams (a token is
sent as one character), which only helps OpenVINO.
"""

import asyncio
import itertools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai
from aiohttp import web

CACHE_GIB = 1  # as `octavo up` takes


class Batching:
    """A pipeline and the thread that steps it."""

    def __init__(self, model: str, threads: int, max_seqs: int) -> None:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size, scheduling.max_num_seqs = CACHE_GIB, max_seqs
        scheduling.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        self.tokenizer = self._pipeline.get_tokenizer()
        self._ids = itertools.count()
        self._changed = threading.Condition()
        self._new: list[tuple[list[int], int, Callable[[int], None]]] = []
        self._open: dict[Any, Callable[[int], None]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, token_ids: list[int], num_tokens: int, on_token: Callable[[int], None]) -> None:
        """Has ``num_tokens`` tokens computed; ``on_token`` is called in the pipeline's thread for each."""
        with self._changed:
            self._new.append((token_ids, num_tokens, on_token))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._new or self._open))
                new, self._new = self._new, []
            for token_ids, num_tokens, on_token in new:
                prompt = ov.Tensor(np.array([token_ids], dtype=np.int64))
                self._open[self._pipeline.add_request(next(self._ids), prompt, _exactly(num_tokens))] = on_token
            self._pipeline.step()
            for handle, on_token in list(self._open.items()):
                self._pass_on(handle, on_token)

    def _pass_on(self, handle: Any, on_token: Callable[[int], None]) -> None:  # noqa: ANN401 - a class without a name
        while handle.can_read():
            for output in handle.read().values():
                for token_id in output.generated_ids:
                    on_token(token_id)
                if output.finish_reason != openvino_genai.GenerationFinishReason.NONE:
                    self._open.pop(handle, None)


def _exactly(num_tokens: int) -> openvino_genai.GenerationConfig:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = num_tokens
    config.ignore_eos, config.do_sample = True, False
    return config


def application(batching: Batching, model: str) -> web.Application:
    """The routes."""
    routes = web.RouteTableDef()

    @routes.get("/health")
    async def health(_: web.Request) -> web.Response:
        return web.Response()

    @routes.get("/v1/models")
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model}]})

    @routes.post("/tokenize")
    async def tokenize(request: web.Request) -> web.Response:
        ids = batching.tokenizer.encode((await request.json())["prompt"], add_special_tokens=False).input_ids
        return web.json_response({"tokens": ids.data[0].tolist()})

    @routes.post("/v1/completions")
    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, num_tokens = body["prompt"], body["max_tokens"]
        token_ids = batching.tokenizer.encode(prompt).input_ids.data[0].tolist() if isinstance(prompt, str) else prompt
        tokens: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        batching.submit(token_ids, num_tokens, lambda token_id: loop.call_soon_threadsafe(tokens.put_nowait, token_id))
        usage = {"usage": {"prompt_tokens": len(token_ids), "completion_tokens": num_tokens}}
        if not body.get("stream"):
            for _ in range(num_tokens):
                await tokens.get()
            return web.json_response(usage)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(num_tokens):
            await tokens.get()
            await response.write(b'data: {"choices": [{"index": 0, "text": "."}]}\n\n')
        await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application(client_max_size=64 << 20)
    app.add_routes(routes)
    return app


if __name__ == "__main__":
    path, port, num_threads, num_seqs = sys.argv[1:]
    serving = application(Batching(path, int(num_threads), int(num_seqs)), Path(path).stem)
    web.run_app(serving, host="127.0.0.1", port=int(port), print=None)
