"""Where a model keeps its chat template."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scheduler.adapters.chat_template import JinjaChatTemplate
from scheduler.adapters.gguf_metadata import read_gguf_metadata
from scheduler.errors import InvalidConfiguration

GGUF_TEMPLATE = "tokenizer.chat_template"
GGUF_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
FOLDER_TOKENS = (*GGUF_TOKENS, "sep_token", "cls_token", "mask_token")


def load_chat_template(model: Path, special_tokens: Collection[str]) -> JinjaChatTemplate | None:
    """The template of a ``.gguf`` file or a Hugging Face folder; ``None`` where it has none.

    Raises ``InvalidConfiguration``.
    """
    source, variables = _of_folder(model) if model.is_dir() else _of_gguf(model)
    if source is None:
        return None
    try:
        return JinjaChatTemplate(source, variables, special_tokens)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"model {model}: {error}") from None


def _of_gguf(path: Path) -> tuple[str | None, dict[str, str]]:
    metadata = read_gguf_metadata(path)
    tokens = metadata.get("tokenizer.ggml.tokens")
    variables: dict[str, str] = {}
    for name, key in GGUF_TOKENS.items():
        token_id = metadata.get(key)
        if isinstance(tokens, list) and isinstance(token_id, int) and token_id < len(tokens):
            variables[name] = str(tokens[token_id])
    source = metadata.get(GGUF_TEMPLATE)
    return (source if isinstance(source, str) else None), variables


def _of_folder(folder: Path) -> tuple[str | None, dict[str, str]]:
    path = folder / "tokenizer_config.json"
    try:
        config = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise InvalidConfiguration(f"model {folder}: {path.name} is not JSON: {error}") from None
    variables = {name: token for name in FOLDER_TOKENS if (token := _content(config.get(name)))}
    template = folder / "chat_template.jinja"
    source = template.read_text(encoding="utf-8") if template.is_file() else _default(config.get("chat_template"))
    return source, variables


def _content(token: str | Mapping[str, Any] | None) -> str | None:
    return token["content"] if isinstance(token, Mapping) else token


def _default(value: str | list[Mapping[str, str]] | None) -> str | None:
    """A folder may name several templates; the one for plain conversations is called "default"."""
    if isinstance(value, list):
        return next((entry["template"] for entry in value if entry["name"] == "default"), None)
    return value
