"""Notices a model that makes the same call with the same result over and over."""

from crushpy.core.messages import ToolCall, to_json

WARN_AT = 5
STOP_AT = 10

NOTE = (
    "\n\n[crushpy: the same call has now given the same result {count} times in a row. "
    "Repeating it will not help; change your approach or tell the user what stands in the way.]"
)


class LoopGuard:
    """Counts how often in a row one call came back with one result. A new prompt starts a new guard."""

    def __init__(self) -> None:
        self._last: tuple[ToolCall, str] | None = None
        self.count = 0

    def seen(self, call: ToolCall, text: str) -> str:
        """Takes note of a result; returns what to add to it for the model, mostly nothing."""
        again = self._last is not None and text == self._last[1] and _same(call, self._last[0])
        self.count = self.count + 1 if again else 1
        self._last = (call, text)
        return NOTE.format(count=self.count) if self.count == WARN_AT else ""

    @property
    def stuck(self) -> bool:
        return self.count >= STOP_AT


def _same(one: ToolCall, other: ToolCall) -> bool:
    def asked(call: ToolCall) -> bytes:
        return to_json((call.name, sorted(call.args.items())))

    return asked(one) == asked(other)
