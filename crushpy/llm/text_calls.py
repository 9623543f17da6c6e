"""Reads tool calls that a model wrote into its text, and writes them back in the same form. Pure.

Small models answer with `{"name": ..., "arguments": ...}`, bare, fenced or in tags, and leave the protocol's
own calls empty.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from crushpy.core.messages import Data, Text, ToolCall, ToolResult
from crushpy.llm.protocol import CallPiece, Request
from crushpy.util.lazy_pattern import lazy_pattern
from crushpy.util.read_json import as_object, as_text

FORM = "written"
"""Key of `ToolCall.opaque`: the form of a call that was written as text."""
ARGUMENT_KEYS = ("arguments", "parameters")
NEXT_STEP = (
    "If all that was asked is done, answer now without a call; else change what must change, or make the "
    "next call."
)
"""Follows a result: without it small models repeat the call."""
AFTER_ERROR = "Make the corrected call, and write nothing after it."
"""Follows the error of a call that was not carried out: without it small models give up."""
INDENTS = (2, 4, 0, -1)
"""How models lay out JSON: in lines, or in one line with or without spaces."""

_TAGS = ("tool_call", "tools", "function_call")
_TAG = rf"(?:{'|'.join(_TAGS)})"
_WRAPPER = r'(?:\{\s*(?:"type":\s*"function",\s*)?"function":\s*|\{)(?=\{)'
"""What may precede the brace of a call: a second brace, as in the template of Qwen2.5-Coder
(`{{"name": ...}}`), or the object in which requests list tools (`{"type": "function", "function": ...}`)."""
_OPENING = lazy_pattern(rf"\s*(?:```\w*\s*)?(?:<{_TAG}>\s*)?(?:{_WRAPPER})?")
_CLOSING = lazy_pattern(rf"(?:\s*\}})*(?:\s*</{_TAG}>)?(?:\s*```(?=\s|$))?")
_BEGINNINGS = (
    *(f'{{"{key}"' for key in ("name", "type", "function", *ARGUMENT_KEYS)),
    "```",
    *(f"{mark}{tag}>" for tag in _TAGS for mark in ("<", "</")),
)
_MAX_BEGINNING_CHARS = 40
_MAX_LATE_CHARS = 20_000
"""Of the end of a reply: where calls that prose follows are looked for."""
_LINE_NUMBER = lazy_pattern(r"^\s*\d+\t", re.MULTILINE)
_WORD = lazy_pattern(r"[^\W_]+")
_JSON = json.JSONDecoder(strict=False)
"""Finds the end of a value; small models do not escape line breaks."""


class CallForm(Data, frozen=True):
    """How a call was written, except for its name and arguments."""

    opening: str
    closing: str
    key: str
    indent: int
    name_first: bool = True

    @property
    def kind(self) -> str:
        """In a word, for the user."""
        return "tagged" if "<" in self.opening else "fenced" if "```" in self.opening else "bare"


class _Block(Data, frozen=True):
    source: str
    name: str
    args: Any
    form: CallForm


class TextCalls:
    """Separates the calls at the end of one reply from its prose, while it arrives."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._text = ""
        """From the start of the first line that may still begin a call."""
        self._shown = 0
        """Characters of it that are known to be prose."""
        self._next_check = 0
        self._reply: list[str] = []
        self.kind = ""
        """The form of the calls found; empty if there are none."""
        self.passed_over = ""
        """The tool of what would have been a call if no prose followed it."""

    def feed(self, text: str) -> str:
        """The prose that is certain by now."""
        self._reply.append(text)
        self._text += text
        prose: list[str] = []
        while self._text and (self._text[: self._shown].strip() or not self._may_be_calls()):
            end = self._text.find("\n", self._shown) + 1
            prose.append(self._text[self._shown : end or None])
            if not end:
                self._shown = len(self._text)
                break
            self._text, self._shown, self._next_check = self._text[end:], 0, 0
        return "".join(prose)

    def end(self, *, read: bool) -> tuple[str, list[CallPiece]]:
        """The rest of the prose, and the calls after it; `read`: whether calls are wanted."""
        start, calls = len(self._text), list[_Block]()
        first = len(self._text) - len(self._text[self._shown :].lstrip())
        for position, block in reversed(list(_parse(self._text, first))) if read else ():
            if block is None or not self._is_call(block):
                break
            start, calls = position, [block, *calls]
        self.kind = calls[0].form.kind if calls else ""
        if read and not calls:
            reply = "".join(self._reply)[-_MAX_LATE_CHARS:]
            blocks = (block for _, block in _parse(reply, 0) if block is not None)
            self.passed_over = next((block.name for block in blocks if self._is_call(block)), "")
        pieces = [
            CallPiece(index, "", call.name, _arguments(call.args), {FORM: msgspec.to_builtins(call.form)})
            for index, call in enumerate(calls)
        ]
        return self._text[self._shown : start], pieces

    def _may_be_calls(self) -> bool:
        """Whether the held text may consist of calls, if more follows."""
        position = 0
        if _may_begin(self._text, position) and len(self._text) >= self._next_check:
            # Prose after a complete block shows that it is not a call. Blocks can be long: checked rarely.
            self._next_check = len(self._text) * 9 // 8
            ends = (start for start, block in _parse(self._text, position) if block is None)
            position = next(ends, -1)
        return position < 0 or _may_begin(self._text, position)

    def _is_call(self, block: _Block) -> bool:
        names = {tool.name for tool in self._request.tools}
        return block.name in names and f" {_words(block.source)} " not in self._quotable()

    def _quotable(self) -> str:
        """All that the model can have read, in words: what it repeats from there is a quotation."""
        texts = [self._request.system]
        for message in self._request.messages:
            for part in message.parts:
                if isinstance(part, ToolResult) or (isinstance(part, Text) and message.role != "assistant"):
                    texts.append(part.text)
                elif isinstance(part, ToolCall):  # the files it wrote
                    texts += [value for value in part.args.values() if isinstance(value, str)]
        return f" {' '.join(map(_words, texts))} "


def _may_begin(text: str, position: int) -> bool:
    """Whether a block begins here, as far as it has arrived."""
    opening = _match_end(_OPENING, text, position)
    head = "".join(text[opening : opening + _MAX_BEGINNING_CHARS].split())
    begun = head or text[position:opening].strip()
    return bool(begun) and any(known.startswith(head[: len(known)]) for known in _BEGINNINGS)


def _parse(text: str, position: int) -> Iterator[tuple[int, _Block | None]]:
    """The blocks from `position` on, each with its start; None for text that is not a block."""
    while text[position:].strip():
        start = _match_end(_OPENING, text, position)
        try:
            value, end = _JSON.raw_decode(text, start)
            found = as_object(msgspec.json.decode(msgspec.json.encode(value)))
        except (ValueError, OverflowError, RecursionError):  # unfinished, or not to be sent back
            found, end = dict[str, Any](), start
        name, key = as_text(found.get("name")), next((key for key in ARGUMENT_KEYS if key in found), "")
        if not name or not key:
            yield position, None
            position = text.find("\n", start) if "\n" in text[start:] else len(text)
            continue
        closed = _match_end(_CLOSING, text, end)
        name_first = list(found).index("name") < list(found).index(key)
        form = CallForm(text[position:start], text[end:closed], key, INDENTS[0], name_first)
        same = (
            indent for indent in INDENTS if _write(name, found[key], form, indent) == text[position:closed]
        )
        form = msgspec.structs.replace(form, indent=next(same, INDENTS[0]))
        yield position, _Block(text[start:end], name, found[key], form)
        position = closed


def _match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


def _arguments(args: Any) -> str:
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def _words(text: str) -> str:
    """Text without layout, quotes, escapes and line numbers."""
    return " ".join(_WORD.findall(_LINE_NUMBER.sub("", text)))


def _write(name: str, args: Any, form: CallForm, indent: int) -> str:
    fields = {"name": name, form.key: args} if form.name_first else {form.key: args, "name": name}
    value = msgspec.json.encode(fields)
    return f"{form.opening}{msgspec.json.format(value, indent=indent).decode()}{form.closing}"


# --- the history


def is_written(call: ToolCall) -> bool:
    return FORM in (call.opaque or {})


def write_call(call: ToolCall) -> str:
    """A call in the form in which it was read."""
    form = msgspec.convert((call.opaque or {})[FORM], CallForm)
    return _write(call.name, call.args, form, form.indent)


def write_result(result: ToolResult) -> str:
    """The result of such a call as the text of a user message, which every chat template accepts."""
    text = result.text.replace("</tool_response", r"<\/tool_response")
    refused = result.is_error and result.display is None  # a command with an exit code has a display
    return f"<tool_response>\n{text}\n</tool_response>\n{AFTER_ERROR if refused else NEXT_STEP}"
