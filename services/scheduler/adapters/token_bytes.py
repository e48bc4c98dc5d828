"""The bytes that a token adds to a text."""

from functools import cache

import tokenizers

_SPACE = "\u2581"


class TokenBytes:
    """Bytes of each token: of byte-level vocabularies by GPT-2's table, of others by SentencePiece's way of writing."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self.special = frozenset(id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        self._is_byte_level = "ByteLevel" in repr(tokenizer.decoder)

    def of(self, token_id: int) -> bytes:
        """Empty for an id without a token."""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._tokenizer.id_to_token(token_id) or ""
        if self._is_byte_level:
            table = _byte_of_character()
            return b"".join(table.get(character) or character.encode() for character in token)
        if len(token) == len("<0x00>") and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace(_SPACE, " ").encode()


@cache
def _byte_of_character() -> dict[str, bytes]:
    """GPT-2's table: a printable byte stands for itself, the others for the characters from U+0100 on, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): bytes([byte]) for byte in printable} | {
        chr(256 + index): bytes([byte]) for index, byte in enumerate(others)
    }
