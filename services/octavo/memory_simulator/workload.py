"""What the memory simulator is given: a memory and a queue of requests."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import WorkloadInvalid

DEFAULT = Path(__file__).with_name("workload.json")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of one request."""

    prompt: int
    answer: int

    @property
    def total(self) -> int:
        """Slots that its KV takes in the end."""
        return self.prompt + self.answer


@dataclass(frozen=True, slots=True)
class Workload:
    """Raises ``WorkloadInvalid`` with the field, the value and the limit."""

    slots: int  # of the memory
    max_len: int  # tokens of the longest request that must be served: slots of a contiguous stretch
    page: int  # slots
    requests: tuple[Lengths, ...]

    def __post_init__(self) -> None:
        for name, size, most in (("max_len", self.max_len, self.slots), ("page", self.page, self.slots)):
            if not 1 <= size <= most or self.slots % size:
                raise WorkloadInvalid(f"{name} is {size}, but must be from 1 to {most} and divide slots ({self.slots})")
        for index, lengths in enumerate(self.requests):
            if lengths.prompt < 1 or lengths.answer < 1 or lengths.total > self.max_len:
                raise WorkloadInvalid(
                    f"request {index} has {lengths.prompt} prompt and {lengths.answer} answer tokens, but must have at "
                    f"least 1 of each and at most {self.max_len} (max_len) together"
                )


def read_workload(path: Path = DEFAULT) -> Workload:
    """The workload of a JSON file. Raises ``WorkloadInvalid`` that names the file and what is wrong."""
    try:
        return _parsed(json.loads(path.read_bytes()))
    except OSError as fault:
        raise WorkloadInvalid(f"{path}: {fault.strerror}") from fault
    except (ValueError, KeyError, TypeError) as fault:
        raise WorkloadInvalid(
            f"{path} must hold slots, max_len, page and requests_prompt_answer, pairs of whole numbers: {fault!r}"
        ) from fault


def _parsed(document: dict[str, Any]) -> Workload:
    pairs = document["requests_prompt_answer"]
    return Workload(
        slots=int(document["slots"]),
        max_len=int(document["max_len"]),
        page=int(document["page"]),
        requests=tuple(Lengths(int(prompt), int(answer)) for prompt, answer in pairs),
    )
