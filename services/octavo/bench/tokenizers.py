"""Tokenizers for servers that do not tell how they tokenize."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx

from octavo.errors import BenchFailed

TIMEOUT_S = 60.0


class Tokenizer(Protocol):
    """Text to token ids and back, without special tokens."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


def open_tokenizer(place: str) -> Tokenizer:
    """The tokenizer of another server (its address), or of a Hugging Face folder. Raises ``BenchFailed``."""
    if place.startswith(("http://", "https://")):
        return ServerTokenizer(place)
    return FolderTokenizer(Path(place))


class ServerTokenizer:
    """Asks the routes `/tokenize` and `/detokenize` of a server that has the same model, as Octavo's and vLLM's are."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def encode(self, text: str) -> list[int]:
        """Raises ``BenchFailed``."""
        token_ids: list[int] = self._ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Raises ``BenchFailed``."""
        return str(self._ask("/detokenize", {"tokens": list(token_ids)})["prompt"])

    def _ask(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        try:
            answer = httpx.post(self._url + path, json=body, timeout=TIMEOUT_S, trust_env=False)
            answer.raise_for_status()
            told: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as fault:
            raise BenchFailed(f"--tokenizer {self._url}: {fault or type(fault).__name__}") from fault
        return told


class FolderTokenizer:
    """Reads `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as LibraryTokenizer  # noqa: PLC0415 - of an optional extra

        path = folder / "tokenizer.json" if folder.is_dir() else folder
        if not path.is_file():
            raise BenchFailed(f"--tokenizer {folder}: there is no tokenizer.json; name a folder with one, or a server")
        self._tokenizer = LibraryTokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``."""
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``."""
        return str(self._tokenizer.decode(list(token_ids)))
