"""What the agent needed after a boundary, seen from later, and how much of it had been carried.

Needed is a name that the agent used after the boundary, that occurred before it, and that no result and no
prompt in between had shown again. Computed from stored messages alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from crushpy.context.coverage import covered, flat
from crushpy.context.facts import calls, command_of, said_in, touched_by
from crushpy.context.names import ShownNames, generic_names, names_in, words_in
from crushpy.context.partition import Size
from crushpy.core.messages import Data, Json, Message, ToolCall

FIRST_REPLIES, ALL_REPLIES = 20, 80
"""Replies after a boundary from which it is first judged, and after which the judgement is final."""
MIN_LINE_CHARS = 12
"""A shorter line of code is found everywhere."""
_OLD_TEXTS = ("old_string", "old_text", "oldText", "oldString", "old_str")
_PATCHES = ("patch", "input", "patchText", "diff")
_SEARCHES = ("grep", "glob", "ls", "search", "find", "list")


class NeededName(Data, frozen=True, omit_defaults=False):
    name: str
    kind: str
    said_by: str
    """Who had said it first: `user`, `assistant` or `tool`."""
    carried: bool


class Hindsight(Data, frozen=True, omit_defaults=False):
    """What was needed after one boundary."""

    names: tuple[NeededName, ...] = ()
    commands: tuple[int, int] = (0, 0)
    """Run before, and again: how many, and how many of them had been carried word for word."""
    lines: tuple[int, int] = (0, 0)
    """Of code that edits had to reproduce."""
    read_again: tuple[str, ...] = ()
    """Files that had been read before the boundary."""
    searched_again: int = 0
    again_tokens: int = 0
    """Of the results of both."""
    replies: int = 0

    @property
    def carried(self) -> int:
        return sum(name.carried for name in self.names)


class Needs(Data, frozen=True):
    """What was needed after a boundary, whatever had been carried."""

    past: "Past"
    names: tuple[NeededName, ...]
    """None of them judged."""
    commands: tuple[str, ...]
    lines: tuple[str, ...]
    again: Hindsight
    """What was looked up again."""

    def judge(self, carried: str) -> Hindsight:
        """How much of it was in the text that the child began with."""
        text, lines = flat(carried), set(_lines(carried))
        kept = ShownNames(self.past.tidy(carried))
        return msgspec.structs.replace(
            self.again,
            names=tuple(msgspec.structs.replace(need, carried=need.name in kept) for need in self.names),
            commands=(len(self.commands), sum(covered(command, text) for command in self.commands)),
            lines=(len(self.lines), sum(line in lines for line in self.lines)),
        )


def find_needs(past: "Past", after: Sequence[Message], *, size: Size) -> Needs:
    """What was needed after the boundary between `past` and `after`."""
    after, shown = _first_replies(after), ShownNames()
    needed: dict[str, str] = {}
    lines: dict[str, None] = {}
    shown_lines = set[str]()
    for message in after:
        if message.role != "assistant":
            text = past.tidy(said_in(message))
            shown.add(words_in(text))
            shown_lines.update(_lines(text))
            continue
        for name, kind in names_in(past.tidy(said_in(message))):
            if name not in needed and name not in shown and name in past.shown:
                needed[name] = kind
        for call in message.calls:
            wanted = (line for line in _old_lines(call) if line in past.lines and line not in shown_lines)
            lines |= dict.fromkeys(wanted)
    names = tuple(
        NeededName(name, kind, past.said_by(name), carried=False)
        for name, kind in needed.items()
        if name not in generic_names()
    )
    ran = {command.text for call, result in calls(after) if (command := command_of(call, result)) is not None}
    read, searched, tokens = _looked_up_again(past, after, size)
    replies = sum(message.role == "assistant" for message in after)
    again = Hindsight(
        read_again=tuple(map(past.tidy, read)), searched_again=searched, again_tokens=tokens, replies=replies
    )
    return Needs(
        past, names, tuple(command for command in past.commands if command in ran), tuple(lines), again
    )


class Past:
    """What occurred before a boundary: grows from one to the next."""

    def __init__(self, messages: Sequence[Message], cwd: str) -> None:
        self._prefix = f"{cwd.rstrip('/')}/"
        self._words: list[tuple[str, set[str]]] = []
        self.shown = ShownNames()
        self.lines = set[str]()
        self.commands: dict[str, None] = {}
        self.read = set[str]()
        self.searches = set[tuple[str, str]]()
        self.add(messages)

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._words.append((message.role, words_in(self.tidy(said_in(message)))))
            self.shown.add(self._words[-1][1])
            if message.result is not None:
                self.lines.update(_lines(message.result.text))
        for call, result in calls(messages):
            if (command := command_of(call, result)) is not None:
                self.commands[command.text] = None
            self.read |= {file.path for file in touched_by(call, result) if file.action == "read"}
            self.searches.add(_search(call))

    def tidy(self, text: str) -> str:
        """`text` with paths relative to the working folder."""
        return text.replace(self._prefix, "") if self._prefix != "/" else text

    def said_by(self, name: str) -> str:
        within = f"/{name.strip('/')}/"
        return next(
            (
                role
                for role, words in self._words
                if name in words or any(within in f"/{word}/" for word in words if "/" in word)
            ),
            "tool",
        )


def _first_replies(messages: Sequence[Message]) -> Sequence[Message]:
    replies = 0
    for place, message in enumerate(messages):
        replies += message.role == "assistant"
        if replies > ALL_REPLIES:
            return messages[:place]
    return messages


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if len(line.strip()) >= MIN_LINE_CHARS)


def _old_lines(call: ToolCall) -> Iterator[str]:
    """The lines that an edit must reproduce exactly."""
    args, edits = call.args, call.args.get("edits")
    for edit in (args, *(cast("list[Any]", edits) if isinstance(edits, list) else ())):
        for key in _OLD_TEXTS if isinstance(edit, dict) else ():
            yield from _lines(str(cast(Json, edit).get(key) or ""))
    patch = "\n".join(text for key in _PATCHES if isinstance(text := args.get(key), str))
    if "*** Begin Patch" in patch:
        yield from (line for part in patch.splitlines() if part[:1] in "- " for line in _lines(part[1:]))


def _search(call: ToolCall) -> tuple[str, str]:
    name = call.name.lower()
    return (name, repr(call.args)) if name in _SEARCHES else ("", "")


def _looked_up_again(past: Past, after: Sequence[Message], size: Size) -> tuple[dict[str, None], int, int]:
    """The files read and how many searches repeated although they had been before, and their tokens."""
    results = {message.result.call_id: size(message) for message in after if message.result is not None}
    read: dict[str, None] = {}
    searched = tokens = 0
    for call, result in calls(after):
        again = [
            file.path for file in touched_by(call, result) if file.path in past.read and file.action == "read"
        ]
        search = _search(call)
        if again or (search[0] and search in past.searches):
            read |= dict.fromkeys(again)
            searched += not again
            tokens += results[result.call_id]
    return read, searched, tokens
