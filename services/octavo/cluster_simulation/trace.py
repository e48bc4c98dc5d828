"""Recorded requests: when they came, how long they were, and what prefixes they shared.

================  ==================================================================================
Mooncake          JSON lines with timestamp (ms), input_length, output_length and hash_ids, one per
                  512 tokens of the prompt; equal leading ids are a shared prefix
Azure LLM 2023    CSV with TIMESTAMP, ContextTokens, GeneratedTokens; nobody shares anything
================  ==================================================================================
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any

from kvmanager.core.plan import HASH_BYTES, PrefixHash
from octavo.errors import TraceUnusable

HASH_TOKENS = 512
"""Tokens of a prompt that one id of a Mooncake trace stands for."""

SPREAD_S = 60.0
"""The copies of a request arrive evenly within so many seconds."""

_AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace."""

    time_s: float  # since the first one
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...] = ()
    copy: int = 0  # copies share no prefix

    @property
    def num_tokens(self) -> int:
        """Prompt and output together."""
        return self.num_prompt_tokens + self.num_output_tokens

    def prefix_hashes(self, block_size: int) -> list[PrefixHash]:
        """One hash per full block of the prompt. ``block_size`` divides ``HASH_TOKENS``."""
        if not self.hash_ids:
            return []
        parts = [part.to_bytes(8) for part in range(HASH_TOKENS // block_size)]
        beginning = self.copy.to_bytes(HASH_BYTES - 16)
        ids = [beginning + hash_id.to_bytes(8) for hash_id in self.hash_ids]
        hashes = [PrefixHash(hash_id + part) for hash_id in ids for part in parts]
        return hashes[: self.num_prompt_tokens // block_size]


def read_trace(path: Path, limit: int | None = None) -> list[TraceRequest]:
    """The first ``limit`` requests of a file, in order of arrival; its ending tells the format.

    Raises:
        TraceUnusable: Names the file, and the line and what is wrong with it.

    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            requests = list(islice(_requests(path, file), limit))
    except (OSError, UnicodeDecodeError) as fault:
        raise TraceUnusable(f"{path} cannot be read: {fault}") from fault
    if not requests:
        raise TraceUnusable(f"{path} has no requests")
    return requests


def scaled(requests: Sequence[TraceRequest], num_copies: int) -> Iterator[TraceRequest]:
    """``num_copies`` times as many requests a second: copies with prefixes of their own, within ``SPREAD_S``."""
    return merge(*(_copy(requests, copy, num_copies) for copy in range(num_copies)), key=lambda request: request.time_s)


def _copy(requests: Sequence[TraceRequest], copy: int, num_copies: int) -> Iterator[TraceRequest]:
    delay_s = copy * SPREAD_S / num_copies
    for one in requests:
        yield TraceRequest(one.time_s + delay_s, one.num_prompt_tokens, one.num_output_tokens, one.hash_ids, copy)


# --- Formats ---

_Row = tuple[int, Any]  # line number, and what stands there


def _requests(path: Path, file: Iterable[str]) -> Iterator[TraceRequest]:
    """The requests of a file, times since the first one."""
    rows: Iterable[_Row]
    read: Callable[[Any], TraceRequest]
    if path.suffix == ".jsonl":
        rows, read = enumerate(file, 1), _mooncake
    else:
        rows, read = _azure_rows(path, file), _azure
    start_s: float | None = None
    before_s = 0.0
    for line, row in rows:
        try:
            request = read(row)
            start_s = request.time_s if start_s is None else start_s
            time_s = request.time_s - start_s
            if time_s < before_s:
                raise ValueError(f"arrives {before_s - time_s:g} s before the request above it")
        except KeyError as fault:
            raise TraceUnusable(f"{path}, line {line}: {fault.args[0]} is missing") from fault
        except (ValueError, TypeError) as fault:
            raise TraceUnusable(f"{path}, line {line}: {fault}") from fault
        before_s = time_s
        yield replace(request, time_s=time_s)


def _mooncake(line: str) -> TraceRequest:
    fields = json.loads(line)
    num_prompt_tokens = _length("input_length", fields["input_length"])
    num_output_tokens = _length("output_length", fields["output_length"])
    hash_ids = tuple(fields["hash_ids"])
    if any(not isinstance(hash_id, int) or hash_id < 0 for hash_id in hash_ids):
        raise ValueError("hash_ids must be whole numbers that are not negative")
    num_hashes = -(-num_prompt_tokens // HASH_TOKENS)
    if len(hash_ids) != num_hashes:
        raise ValueError(
            f"hash_ids has {len(hash_ids)} entries, but an input_length of {num_prompt_tokens} has {num_hashes} "
            f"blocks of {HASH_TOKENS}"
        )
    return TraceRequest(float(fields["timestamp"]) / 1000, num_prompt_tokens, num_output_tokens, hash_ids)


def _azure_rows(path: Path, file: Iterable[str]) -> Iterator[_Row]:
    rows = csv.DictReader(file)
    missing = set(_AZURE_COLUMNS).difference(rows.fieldnames or ())
    if missing:
        raise TraceUnusable(f"{path}, line 1: has no column {', '.join(sorted(missing))}")
    for row in rows:
        yield rows.line_num, row


def _azure(row: dict[str, str]) -> TraceRequest:
    moment = datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC)  # zone not stated; only distances count
    return TraceRequest(
        moment.timestamp(),
        _length("ContextTokens", int(row["ContextTokens"])),
        _length("GeneratedTokens", int(row["GeneratedTokens"])),
    )


def _length(name: str, value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1")
    return value
