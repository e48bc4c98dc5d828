"""Finding stop strings in text that arrives in pieces."""


class StopStrings:
    """Lets text through, but nothing of a stop string, unless it ``includes_match``.

    The string that is complete first wins, so the outcome does not depend on how the text was cut into pieces. Text
    that may be the beginning of a stop string is held back until it is known not to be.
    """

    __slots__ = ("_held", "_includes_match", "_longest", "_stops", "matched")

    def __init__(self, stops: tuple[str, ...], *, includes_match: bool = False) -> None:
        self._stops = stops
        self._includes_match = includes_match
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Text that may be emitted now. After a match, ``matched`` names the stop string and nothing more comes."""
        if not self._stops or not text:
            return text
        text = self._held + text
        match = self._first_match(text)
        if match is not None:
            start, self.matched = match
            self._held = ""
            return text[: start + len(self.matched)] if self._includes_match else text[:start]
        held = self._num_held(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """The held-back text, once no more can come."""
        text, self._held = self._held, ""
        return text

    def _first_match(self, text: str) -> tuple[int, str] | None:
        found = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(found, key=lambda match: (match[0] + len(match[1]), match[0]), default=None)

    def _num_held(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[start:]
            if any(stop.startswith(end) for stop in self._stops):
                return len(end)
        return 0
