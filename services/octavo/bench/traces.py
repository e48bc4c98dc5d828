"""Recorded requests as shapes: lengths, arrival times and shared prefixes, without any text.

========================  =============================================================================
Azure LLM inference 2023  CSV with TIMESTAMP, ContextTokens, GeneratedTokens
Mooncake                  JSON lines with timestamp (ms), input_length, output_length, hash_ids
ShareGPT, arXiv lengths   CSV with num_prefill_tokens, num_decode_tokens; no times: all may start at once
========================  =============================================================================
"""

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from octavo.bench.workload import Passage, RequestShape, own
from octavo.errors import BenchFailed

MOONCAKE_BLOCK_SIZE = 512  # tokens that one hash id stands for


def read_trace(path: Path) -> tuple[RequestShape, ...]:
    """The requests of a file whose format its columns tell; raises ``BenchFailed``."""
    try:
        with path.open(newline="") as file:
            shapes = tuple(_shapes(path, file))
    except OSError as fault:
        raise BenchFailed(f"--trace {path}: {fault.strerror or fault}") from fault
    except (ValueError, KeyError, TypeError) as fault:
        raise BenchFailed(f"--trace {path}: a line cannot be read: {fault!r}") from fault
    if not shapes:
        raise BenchFailed(f"--trace {path} has no requests")
    return shapes


def _shapes(path: Path, lines: Iterable[str]) -> Iterator[RequestShape]:
    if path.suffix == ".jsonl":
        return (_mooncake(index, json.loads(line)) for index, line in enumerate(lines))
    rows = csv.DictReader(lines)
    columns = set(rows.fieldnames or ())
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= columns:
        return _azure(rows)
    if {"num_prefill_tokens", "num_decode_tokens"} <= columns:
        return (
            RequestShape((own(index, int(row["num_prefill_tokens"])),), int(row["num_decode_tokens"]))
            for index, row in enumerate(rows)
        )
    raise BenchFailed(f"--trace {path} has the columns {sorted(columns)}, which no known trace has")


def _azure(rows: Iterable[dict[str, str]]) -> Iterator[RequestShape]:
    start: datetime | None = None
    for index, row in enumerate(rows):
        arrival = datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC)  # zone not stated; only distances count
        start = start or arrival
        yield RequestShape(
            (own(index, int(row["ContextTokens"])),),
            max(1, int(row["GeneratedTokens"])),
            (arrival - start).total_seconds(),
        )


def _mooncake(index: int, request: dict[str, Any]) -> RequestShape:
    """Equal ids are equal blocks of text; the last block may be shorter than the others."""
    left = int(request["input_length"])
    passages = []
    for hash_id in request["hash_ids"]:
        passages.append(Passage(f"block {hash_id}", min(left, MOONCAKE_BLOCK_SIZE)))
        left -= passages[-1].num_tokens
    if left > 0:
        passages.append(own(index, left))
    return RequestShape(tuple(passages), max(1, int(request["output_length"])), request["timestamp"] / 1000)
