"""Server-sent events of a streamed completion.

A chunk differs from the one before in a few bytes, so the rest is encoded once per call.
"""

import json
from collections.abc import Mapping
from typing import Any

from scheduler.api.errors import ApiError
from scheduler.core.request import OutputDelta

DONE = b"data: [DONE]\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON without spaces."""


class ChunkEncoder:
    """Events of one call."""

    def __init__(self, envelope: Mapping[str, Any], *, include_usage: bool) -> None:
        self._head = "data: " + encode(envelope)[:-1] + ',"choices":['
        usage = ',"usage":null' if include_usage else ""
        self._open_end = ',"logprobs":null,"finish_reason":null,"stop_reason":null}]' + usage + "}\n\n"
        self._usage = usage

    def chunk(self, index: int, delta: OutputDelta) -> bytes:
        """What was added to the choice at ``index``."""
        start = f'{self._head}{{"index":{index},"text":{encode(delta.text)}'
        if delta.finish_reason is None:
            return (start + self._open_end).encode()
        reasons = f'"finish_reason":"{delta.finish_reason.value}","stop_reason":{encode(delta.stop_reason)}'
        return f'{start},"logprobs":null,{reasons}}}]{self._usage}}}\n\n'.encode()

    def choice(self, choice: Mapping[str, Any]) -> bytes:
        """A choice object that is built already."""
        return self.encoded(encode(choice))

    def encoded(self, choice: str) -> bytes:
        """A choice object that is JSON already."""
        return f"{self._head}{choice}]{self._usage}}}\n\n".encode()

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The last chunk: no choices."""
        return f'{self._head}],"usage":{encode(usage)}}}\n\n'.encode()


def error_event(error: ApiError) -> bytes:
    """A failure after the stream began."""
    return f"data: {error.body()}\n\n".encode()
