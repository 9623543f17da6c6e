"""Finds views of files that later calls replace: the same lines read again, or the file written anew."""

from collections.abc import Sequence

from crushpy.context.facts import absolute
from crushpy.core.messages import Data, Message, ToolCall

DEFAULT_LINES = 2_000
"""How many lines `view` shows unless told otherwise."""


class _View(Data, frozen=True):
    message: Message
    first: int
    last: int

    def covers(self, other: "_View") -> bool:
        return self.first <= other.first and other.last <= self.last


def superseded_views(history: Sequence[Message], *, cwd: str) -> list[Message]:
    """Results of `view` whose lines stand in the history again, later. In order."""
    waiting: dict[str, ToolCall] = {}
    latest: dict[str, list[_View]] = {}
    found: dict[str, None] = {}
    for message in history:
        waiting.update({call.id: call for call in message.calls})
        result = message.result
        call = waiting.pop(result.call_id, None) if result is not None else None
        if result is None or call is None or result.is_error:
            continue
        path = str(call.args.get("file_path") or "").strip()
        if not path:
            continue
        views = latest.setdefault(absolute(path, cwd), [])
        if call.name == "view":
            view = _View(message, *_lines(call))
            old = [one for one in views if view.covers(one)]
            views[:] = [*(one for one in views if one not in old), view]
        elif call.name == "write":
            old, views[:] = list(views), []
        else:
            continue
        found.update(dict.fromkeys(one.message.id for one in old))
    return [message for message in history if message.id in found]


def _lines(call: ToolCall) -> tuple[int, int]:
    """The first and the last line that a view asked for."""
    first = max(1, _number(call.args.get("offset"), 1))
    return first, first + max(1, _number(call.args.get("limit"), DEFAULT_LINES)) - 1


def _number(value: object, default: int) -> int:
    try:
        return int(str(value)) if value is not None else default
    except ValueError:
        return default
