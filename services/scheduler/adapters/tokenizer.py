"""The model's tokenizer, by the `tokenizers` library."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from scheduler.adapters.token_bytes import TokenBytes
from scheduler.adapters.tokenizer_gguf import gguf_tokenizer
from scheduler.core.chat import PromptPart
from scheduler.errors import InvalidConfiguration


class ModelTokenizer:
    """Implements ``Tokenizer``. Safe to use from several threads."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._bytes = TokenBytes(tokenizer)
        self._eos_token_ids = eos_token_ids
        self._vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return self._vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids after which a sequence ends."""
        return self._eos_token_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``, with the special tokens that the model's tokenizer adds to a prompt."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_parts(self, parts: Sequence[PromptPart]) -> list[int]:
        """Token ids of a rendered prompt; special tokens are those that its pieces have, except in literal ones."""
        token_ids: list[int] = []
        for part in parts:
            tokenizer = self._blind_tokenizer if part.is_literal else self._tokenizer
            token_ids += tokenizer.encode(part.text, add_special_tokens=False).ids
        return token_ids

    @property
    def library_tokenizer(self) -> tokenizers.Tokenizer:
        """For other adapters that need the whole vocabulary."""
        return self._tokenizer

    @cached_property
    def special_tokens(self) -> frozenset[str]:
        """What is no text, such as the mark at the end of a turn."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    @cached_property
    def _blind_tokenizer(self) -> tokenizers.Tokenizer:
        """The same, but it takes special tokens for text."""
        tokenizer = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        tokenizer.encode_special_tokens = True
        return tokenizer

    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        """The tokens as the vocabulary writes them; empty for an id without one."""
        return [self._tokenizer.id_to_token(token_id) or "" for token_id in token_ids]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``token_ids`` without special tokens. Incomplete UTF-8 at the end comes out as U+FFFD.

        A leading space stays: the text is what these tokens add after other tokens.
        """
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text, which may be a part of a character; a special token's name in UTF-8."""
        return self._bytes.of(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether ``decode`` leaves a token out as special."""
        return token_id in self._bytes.special


def load_tokenizer(model: Path) -> ModelTokenizer:
    """From a ``.gguf`` file or a Hugging Face folder. Raises ``InvalidConfiguration``."""
    if model.is_dir():
        return _from_folder(model)
    if not model.is_file():
        raise InvalidConfiguration(f"model {model}: there is no such file or folder")
    if model.suffix != ".gguf":
        raise InvalidConfiguration(f"model {model}: expected a .gguf file or a Hugging Face folder")
    tokenizer, eos_token_ids = gguf_tokenizer(model)
    return ModelTokenizer(tokenizer, eos_token_ids)


def _from_folder(folder: Path) -> ModelTokenizer:
    if not (folder / "tokenizer.json").is_file():
        raise InvalidConfiguration(f"model {folder}: the folder has no tokenizer.json")
    description = _read_json(folder / "tokenizer.json")
    description["decoder"] = _keeping_leading_space(description.get("decoder"))
    description["truncation"] = None
    description["padding"] = None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(description))
    except Exception as error:  # noqa: BLE001 - the library raises no narrower class
        raise InvalidConfiguration(f"model {folder}: tokenizer.json is unusable: {error}") from None
    paths = (folder / name for name in ("generation_config.json", "config.json"))
    configs = [_read_json(path) for path in paths if path.is_file()]
    return ModelTokenizer(tokenizer, frozenset().union(*(_end_token_ids(config) for config in configs)))


def _keeping_leading_space(decoder: Any) -> Any:  # noqa: ANN401 - any decoder that the library knows
    """The same decoder without the step that cuts a space off the front, which only a text's first token may lose."""
    if not isinstance(decoder, dict):
        return decoder
    if decoder["type"] == "Sequence":
        steps = [_keeping_leading_space(step) for step in decoder["decoders"] if step["type"] != "Strip"]
        return decoder | {"decoders": steps}
    if decoder["type"] == "Metaspace":
        return decoder | {"prepend_scheme": "never"}
    return decoder


def _end_token_ids(config: Mapping[str, Any]) -> frozenset[int]:
    value = config.get("eos_token_id")
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidConfiguration(f"model {path.parent}: {path.name} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidConfiguration(f"model {path.parent}: {path.name} is no JSON object")
    return content
