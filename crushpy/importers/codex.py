"""codex: one JSONL file per session below `sessions/YYYY/MM/DD/`; a line is `{timestamp, type, payload}`.

In files of the first releases a line is the payload alone.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from crushpy.core.messages import Json, Part, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.importers import foreign
from crushpy.importers.foreign import listing, seconds_of, whole
from crushpy.importers.foreign_files import json_lines, jsonl_sessions
from crushpy.util.read_json import as_object, as_text

_HEAD_LINES = 20
_GENERATED_TEXT = re.compile(
    r"<(?:environment_context|user_instructions|permissions instructions|turn_aborted|collaboration_mode"
    r"|subagent_notification|skill|INSTRUCTIONS)\b|# AGENTS\.md instructions"
)
"""The beginnings of messages that codex writes in the user's name."""
_EXIT_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d{1,4})$", re.MULTILINE)
_DUPLICATE_EVENTS = {
    "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "task_started",
    "task_complete", "turn_started", "turn_complete", "context_compacted", "exec_command_end",
    "patch_apply_end", "mcp_tool_call_end", "web_search_end", "turn_aborted", "token_count",
}  # fmt: skip
"""Events that repeat the content of other lines."""
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def _places(cwd: Path) -> Sequence[Path]:
    home = Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser()
    return [home / "sessions", home / "archived_sessions"]


def _sessions_in(path: Path) -> Iterator[foreign.Found]:
    def look(file: Path) -> foreign.Found | None:
        return _session(file) if file == path or file.name.startswith("rollout-") else None

    return jsonl_sessions(path, look)


CODEX = foreign.Source("codex", "codex", _places, _sessions_in)


def _session(file: Path) -> foreign.Found:
    meta: Json = {}
    for number, value in islice(json_lines(file, foreign.Unmapped()), _HEAD_LINES):
        if value.get("type") == "session_meta" or (number == 1 and "id" in value):
            meta = as_object(value.get("payload")) or value
            break
    if "subagent" in as_object(meta.get("source")):
        return foreign.SkippedSession(file)
    vendor = as_text(meta.get("model_provider")) or "openai"
    return foreign.ForeignSession(
        id=as_text(meta.get("id")) or file.stem,
        file=file,
        cwd=as_text(meta.get("cwd")),
        read=lambda unmapped: _Reader(vendor, unmapped).read(file),
        created_at=seconds_of(meta.get("timestamp")),
    )


class _Reader:
    def __init__(self, vendor: str, unmapped: foreign.Unmapped) -> None:
        self._vendor = vendor
        self._unmapped = unmapped
        self._model = ""
        self._total: Usage | None = None
        """What the last report counted since the beginning."""

    def read(self, file: Path) -> Iterator[foreign.Item]:
        """The usage of a reply is reported later, often after the results of its calls. The text of a summary
        is also in the compaction that follows, and is not a reply."""
        items = list(self._items(file))
        first = next((item for item in items if isinstance(item, Usage) or _is_reply(item)), None)
        found: list[foreign.Item] = []
        last: foreign.Piece | None = None
        """The last piece of a reply, at `place`."""
        place, number, ended = 0, 0, True
        for item in _delayed(items) if isinstance(first, Usage) else items:
            if isinstance(item, Usage):
                if last is not None and last.usage is None:
                    found[place] = last = msgspec.structs.replace(last, usage=item)
                else:
                    found.append(foreign.without_message(item))
            elif isinstance(item, foreign.ForeignCompaction):
                used = Usage()
                if last is not None and _is_summary(last, item):
                    used = last.usage or used
                    found[place] = foreign.without_message(used)
                found.append(msgspec.structs.replace(item, tokens_before=used.total - used.output_tokens))
                last = None
            elif isinstance(item, foreign.Piece) and _is_reply(item):
                number += ended
                place, last = len(found), msgspec.structs.replace(item, group=f"reply {number}")
                found.append(last)
            else:
                found.append(item)
            if not isinstance(item, foreign.Heading):
                ended = not _is_reply(item)
        yield from found

    def _items(self, file: Path) -> Iterator[foreign.Item | Usage]:
        for number, value in json_lines(file, self._unmapped):
            kind, payload = as_text(value.get("type")), as_object(value.get("payload"))
            own, at = f"line {number}", seconds_of(value.get("timestamp"))
            match kind:
                case "session_meta":
                    pass
                case "turn_context":
                    self._model = as_text(payload.get("model")) or self._model
                case "response_item":
                    yield from self._item(payload, own, at)
                case "compacted" if as_text(payload.get("message")).strip():
                    yield foreign.ForeignCompaction(own, as_text(payload["message"]), at)
                case "compacted":
                    self._unmapped["compaction without a readable summary"] += 1
                case "event_msg":
                    yield from self._event(payload)
                case _ if not kind and (number == 1 or "record_type" in value):
                    pass  # the header and markers of an early file
                case _ if not payload:
                    yield from self._item(value, own, at)
                case _:
                    self._unmapped[kind] += 1

    def _event(self, event: Json) -> Iterator[foreign.Item | Usage]:
        kind = as_text(event.get("type"))
        if kind == "thread_name_updated":
            yield foreign.Heading(as_text(event.get("thread_name")))
        elif kind == "token_count":
            info = as_object(event.get("info"))
            used, total = (_usage(as_object(info.get(f"{name}_token_usage"))) for name in ("last", "total"))
            before, self._total = self._total, total or self._total
            if used is not None and (total is None or total != before):  # else a repeated report
                if total and before and (aborted := _difference(total, before, used)):
                    yield foreign.without_message(aborted)
                yield used
        elif kind == "thread_rolled_back":
            self._unmapped["turn that was rolled back"] += max(1, whole(event.get("num_turns")))
        elif kind not in _DUPLICATE_EVENTS:
            self._unmapped[f"event {kind}".strip()] += 1

    def _item(self, item: Json, own: str, at: float) -> Iterator[foreign.Item]:
        kind = as_text(item.get("type"))
        if kind == "message":
            yield from self._message(item, own, at)
        elif kind == "reasoning":
            texts = [as_text(as_object(entry).get("text")) for entry in listing(item.get("summary"))]
            if any(texts):
                yield self._reply(own, at, Thinking("\n\n".join(filter(None, texts))))
        elif kind in _CALLS:
            yield self._reply(own, at, _call(item, kind))
        elif kind in _OUTPUTS:
            yield foreign.Piece(own, "tool", (_result(item),), at)
        else:
            self._unmapped[kind or "line without a type"] += 1

    def _message(self, item: Json, own: str, at: float) -> Iterator[foreign.Item]:
        parts = _parts(item.get("content"))
        role = as_text(item.get("role"))
        if role == "assistant" and parts:
            yield self._reply(own, at, *parts)
        elif role == "user" and parts:
            words = [
                part
                for part in parts
                if not (isinstance(part, Text) and _GENERATED_TEXT.match(part.text.lstrip()))
            ]
            self._unmapped["generated message"] += len(parts) - len(words)
            if words:
                yield foreign.Piece(own, "user", tuple(words), at)
        elif parts:
            self._unmapped[f"{role} message".strip()] += 1

    def _reply(self, own: str, at: float, *parts: Part) -> foreign.Piece:
        model = f"{self._vendor}/{self._model}" if self._model else ""
        return foreign.Piece(own, "assistant", parts, at, model=model)


def _is_reply(item: foreign.Item | Usage) -> bool:
    return isinstance(item, foreign.Piece) and item.role == "assistant" and bool(item.parts)


def _difference(total: Usage, before: Usage, used: Usage) -> Usage | None:
    """What the total grew by beside the reported usage: that of a turn that was aborted. Else None."""
    figures = zip(*map(msgspec.structs.astuple, (total, before, used)), strict=True)
    grown = [now - then - reported for now, then, reported in figures]
    return Usage(*grown) if min(grown) >= 0 and any(grown) else None


def _delayed(items: Iterable[foreign.Item | Usage]) -> Iterator[foreign.Item | Usage]:
    """In files of 2025-09 the usage precedes its reply: moves it to the end of the reply."""
    held: list[Usage] = []
    for item in items:
        if isinstance(item, Usage):
            yield from held
            held = [item]
        else:
            yield item
    yield from held


def _is_summary(reply: foreign.Piece, compaction: foreign.ForeignCompaction) -> bool:
    text = "".join(part.text for part in reply.parts if isinstance(part, Text)).strip()
    return bool(text) and text in compaction.summary


def _parts(content: Any) -> list[Part]:
    parts: list[Part] = []
    for block in map(as_object, listing(content)):
        if block.get("type") in ("input_text", "output_text", "text") and as_text(block.get("text")).strip():
            parts.append(Text(block["text"]))
        elif block.get("type") == "input_image":
            parts.append(foreign.image_from_url(block.get("image_url")))
    return parts


def _call(item: Json, kind: str) -> ToolCall:
    own = as_text(item.get("call_id")) or as_text(item.get("id"))
    if kind == "local_shell_call":
        return ToolCall(own, "shell", {"command": as_object(item.get("action")).get("command", [])})
    if kind == "custom_tool_call":
        return ToolCall(own, as_text(item.get("name")), {"input": as_text(item.get("input"))})
    return foreign.tool_call(own, item.get("name"), item.get("arguments"))


def _result(item: Json) -> ToolResult:
    output: Any = item.get("output")
    if isinstance(output, list):
        return foreign.tool_result(item.get("call_id"), _parts(output), False)
    text = as_text(as_object(output).get("content")) or as_text(output)
    if text.startswith('{"output":'):  # a command in an early release
        told = as_object(foreign.parsed(text))
        code = as_object(told.get("metadata")).get("exit_code")
        if isinstance(told.get("output"), str):
            text = (f"Exit code: {code}\n" if isinstance(code, int) and code else "") + told["output"]
    found = _EXIT_CODE.search(text[:400])
    failed = as_object(output).get("success") is False or (found is not None and found[1] != "0")
    return foreign.tool_result(item.get("call_id"), [Text(text)], failed)


def _usage(given: Json) -> Usage | None:
    cached = whole(given.get("cached_input_tokens"))
    uncached = max(0, whole(given.get("input_tokens")) - cached)
    return foreign.usage(uncached, whole(given.get("output_tokens")), cached, 0)
