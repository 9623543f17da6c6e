"""Builds valid messages from foreign pieces: merged, every call followed by its result, with ids of our own.

A result without a call is counted; a call without a result is closed as interrupted.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Diff, Display, Json, Message, Part, Terminal, Text, ToolCall, ToolResult
from crushpy.importers.foreign import ForeignCompaction, Piece, Unmapped
from crushpy.util.read_json import as_object, as_text

INTERRUPTED = (
    "Interrupted: the imported session has no result for this call. Its effects are unknown; check before "
    "repeating it."
)
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_SHELL_TOOLS = {
    "bash", "shell", "exec_command", "local_shell", "container_exec", "shell_command", "run_shell_command",
}  # fmt: skip
_WRITE_TOOLS = {"write", "write_file", "create_file"}
_EDIT_TOOLS = {"edit", "multiedit", "multi_edit", "str_replace", "edit_file"}
_MAX_DIFF_LINES = 400
"""Longer changes are counted without a diff: comparing them is slow."""
_EXIT_CODE = re.compile(
    r"(?:exit(?:ed with)? code|exit_code|exited with code)\W{0,4}(-?\d{1,4})\b", re.IGNORECASE
)


Normal = Message | ForeignCompaction


def normalised(items: Iterable[Piece | ForeignCompaction], unmapped: Unmapped) -> Iterator[Normal]:
    work = _Normaliser(unmapped)
    for item in items:
        if isinstance(item, ForeignCompaction):
            yield from work.compact(item)
        elif item.parts:
            yield from work.add(item)
    yield from work.finish()


class _Normaliser:
    def __init__(self, unmapped: Unmapped) -> None:
        self._unmapped = unmapped
        self._current: list[Piece] = []
        """Pieces of the message under construction."""
        self._open: dict[str, ToolCall] = {}
        """Calls of the last reply without a result, by their foreign ids."""
        self._held: list[tuple[Message, Piece]] = []
        """Prompts that arrived while calls were open, each with its first piece."""
        self._used: set[str] = set()
        self._places: list[tuple[str, str, str]] = []
        """First piece, group and our own id of every message of this session so far."""
        self._moment = 0.0

    def add(self, piece: Piece) -> Iterator[Normal]:
        if piece.role == "tool":
            yield from self._flush()
            yield from self._answer(piece)
            return
        first = self._current[0] if self._current else None
        same = first is not None and (first.role, first.group) == (piece.role, piece.group)
        if not same or not piece.group:
            yield from self._flush()
        self._current.append(piece)

    def compact(self, found: ForeignCompaction) -> Iterator[Normal]:
        yield from self.finish()
        starts = [at for at, place in enumerate(self._places) if found.keep_from in place[:2]]
        self._places = self._places[starts[0] :] if found.keep_from and starts else []
        self._moment = found.created_at or self._moment
        tail = tuple(place[2] for place in self._places)
        yield msgspec.structs.replace(found, created_at=self._moment, tail=tail)

    def finish(self) -> Iterator[Normal]:
        yield from self._flush()
        yield from self._close_calls()

    def _flush(self) -> Iterator[Normal]:
        pieces, self._current = self._current, []
        if not pieces:
            return
        if pieces[0].role == "assistant":
            yield from self._close_calls()
        message = self._message(pieces)
        if pieces[0].role == "assistant" or not self._open:
            yield self._placed(message, pieces[0])
            return
        self._held.append((message, pieces[0]))

    def _message(self, pieces: list[Piece]) -> Message:
        role = pieces[0].role
        parts = _joined(part for piece in pieces for part in piece.parts)
        self._moment = pieces[0].created_at or self._moment
        model = next((piece.model for piece in pieces if piece.model), "")
        usage = next((piece.usage for piece in reversed(pieces) if piece.usage), None)
        if role != "assistant":
            return Message(new_id(), role, parts, self._moment, model, usage)
        parts = tuple(self._with_valid_ids(parts))
        finish = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
        return Message(new_id(), role, parts, self._moment, model, usage, finish)

    def _with_valid_ids(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Gives calls unique ids, and names that every provider accepts."""
        for part in parts:
            if not isinstance(part, ToolCall):
                yield part
            elif part.id in self._open:
                self._unmapped["repeated call"] += 1
            else:
                own = _NOT_ALLOWED.sub("_", part.id)[:60]
                own = own if own and own not in self._used else f"call_{new_id()}"
                name = _NOT_ALLOWED.sub("_", part.name)[:64] or "tool"
                self._used.add(own)
                self._open[part.id] = msgspec.structs.replace(part, id=own, name=name)
                yield self._open[part.id]

    def _answer(self, piece: Piece) -> Iterator[Normal]:
        for part in piece.parts:
            if not isinstance(part, ToolResult):
                continue
            call = self._open.pop(part.call_id, None)
            if call is None:
                self._unmapped["result without a call"] += 1
                continue
            result = msgspec.structs.replace(
                part, call_id=call.id, name=call.name, display=part.display or _display(call, part)
            )
            self._moment = piece.created_at or self._moment
            yield self._placed(Message(new_id(), "tool", (result,), self._moment), piece)
        if not self._open:
            yield from self._release()

    def _close_calls(self) -> Iterator[Normal]:
        """Gives every open call a result that says there is none."""
        for call in self._open.values():
            result = ToolResult(call.id, call.name, INTERRUPTED, is_error=True)
            yield self._placed(Message(new_id(), "tool", (result,), self._moment))
        self._open = {}
        yield from self._release()

    def _release(self) -> Iterator[Normal]:
        held, self._held = self._held, []
        for message, first in held:
            yield self._placed(message, first)

    def _placed(self, message: Message, first: Piece | None = None) -> Message:
        self._places.append((first.id, first.group, message.id) if first else ("", "", message.id))
        return message


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Joins adjacent texts: the blocks of one text."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, Text) and isinstance(found[-1], Text):
            found[-1] = Text(f"{found[-1].text}\n\n{part.text}")
        else:
            found.append(part)
    return tuple(found)


def _display(call: ToolCall, result: ToolResult) -> Display | None:
    """What a foreign call did, so that evidence and the app show it like our own tools; None if unknown."""
    name = call.name.lower()
    if name in _SHELL_TOOLS:
        command = _command(call.args)
        # From the first or last lines of the text; else 0 if the result is not an error.
        found = _EXIT_CODE.search(result.text[:400]) or _EXIT_CODE.search(result.text[-200:])
        code = int(found[1]) if found else None if result.is_error else 0
        return Terminal(command, result.text, code) if command else None
    if result.is_error:
        return None
    path = _first_text(call.args, "file_path", "filePath", "path")
    if not path:
        return None
    if name in _WRITE_TOOLS:
        return _diff(path, "", as_text(call.args.get("content")))
    if name not in _EDIT_TOOLS:
        return None
    edits: list[Any] = call.args["edits"] if isinstance(call.args.get("edits"), list) else [call.args]
    diffs = [_diff(path, *_change(as_object(edit))) for edit in edits]
    unified = "".join(diff.unified for diff in diffs)
    return Diff(path, unified, sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs))


def _command(args: Json) -> str:
    value: Any = args.get("command", args.get("cmd", ""))
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]  # pyright: ignore[reportUnknownVariableType]
        if len(words) == 3 and words[1] in ("-c", "-lc"):
            return words[2].strip()
        return " ".join(words).strip()
    return value.strip() if isinstance(value, str) else ""


def _change(edit: Json) -> tuple[str, str]:
    return (
        _first_text(edit, "old_string", "oldString", "oldText", "old_str"),
        _first_text(edit, "new_string", "newString", "newText", "new_str"),
    )


def _first_text(args: Json, *keys: str) -> str:
    return next((as_text(args[key]) for key in keys if args.get(key)), "")


def _diff(path: str, old: str, new: str) -> Diff:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_DIFF_LINES:
        return Diff(path, "", len(after), len(before))
    lines = list(difflib.unified_diff(before, after, path, path, lineterm="", n=3))
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Diff(path, "".join(f"{line}\n" for line in lines), added, removed)
