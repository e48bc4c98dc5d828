"""What is kept of keys, as `octavo keys` writes it: one JSON object each, none of which can be used to call."""

from collections.abc import Sequence
from typing import Any

from scheduler.core.keys import KeyClass, KeyEntry, Keyring
from scheduler.errors import InvalidConfiguration

DIGEST_BYTES = 32
MAX_PER_MINUTE = 2**53  # buckets count in floats


def keyring_of(items: Sequence[object], source: str) -> Keyring:
    """Raises ``InvalidConfiguration`` that names the source, the entry and the field, and shows no value."""
    entries = [_entry(source, index, item) for index, item in enumerate(items)]
    by_id = {entry.key_id: entry for entry in entries}
    if len(by_id) < len(entries):
        raise InvalidConfiguration(f"--api-keys {source}: an id is there more than once")
    return Keyring(by_id)


def _entry(source: str, index: int, item: object) -> KeyEntry:
    try:
        return _parsed(item if isinstance(item, dict) else {})
    except (KeyError, TypeError, ValueError) as error:
        field = error.args[0] if isinstance(error, KeyError) else str(error)
        raise InvalidConfiguration(f"--api-keys {source}: key {index}: {field} is missing or wrong") from None


def _parsed(item: dict[str, Any]) -> KeyEntry:
    return KeyEntry(
        key_id=_text(item, "id"),
        tenant=_text(item, "tenant"),
        key_class=_class(item),
        digest=_digest(item),
        requests_per_minute=_limit(item, "requests_per_minute"),
        tokens_per_minute=_limit(item, "tokens_per_minute"),
    )


def _text(item: dict[str, Any], field: str) -> str:
    value = item[field]
    if not isinstance(value, str) or not value:
        raise ValueError(field)
    return value


def _class(item: dict[str, Any]) -> KeyClass:
    try:
        return KeyClass(item["class"])
    except ValueError:
        raise ValueError("class") from None


def _digest(item: dict[str, Any]) -> bytes:
    try:
        digest = bytes.fromhex(item["sha256"])
    except (TypeError, ValueError):
        raise ValueError("sha256") from None
    if len(digest) != DIGEST_BYTES:
        raise ValueError("sha256")
    return digest


def _limit(item: dict[str, Any], field: str) -> int | None:
    value = item.get(field)
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_PER_MINUTE):
        raise ValueError(field)
    return value
