"""Client for Anthropic's Messages protocol, for Anthropic and compatible gateways and servers."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import msgspec

from crushpy.core.messages import BOUND_PREFIX, Json, Message, Text, Thinking
from crushpy.llm.anthropic.reply import MessageReader
from crushpy.llm.anthropic.request import AnthropicQuirks, claude_searches_tools, messages_body
from crushpy.llm.anthropic.thinking_binding import (
    BoundRequest,
    ThinkingBinding,
    binds_thinking,
    signed_summary_of,
)
from crushpy.llm.errors import ModelError
from crushpy.llm.http_provider import HttpProvider, ReplyReader
from crushpy.llm.protocol import Done, Request, ToolSpec
from crushpy.llm.vendors import BY_NAME

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody

VERSION = "2023-06-01"
INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14"
"""Lets a model with a thinking budget think between its calls; others do so by default."""
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"
INLINE_TOOLS = "inline-tools-2026-09-15"
BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"
COMPACT = "compact-2026-09-04"

_REFUSED_STATUS = (
    r"clear_at|mid-conversation|anthropic-beta|role.{0,80}\bsystem\b|\bsystem\b.{0,80}role|system message"
)
_MAX_OUTPUT = re.compile(r"max_tokens: \d+ > (\d+)")


class AnthropicProvider(HttpProvider[AnthropicQuirks]):
    """The address may end in /v1 or not."""

    quirks = AnthropicQuirks
    api_base = BY_NAME["anthropic"].usual_base
    key_header = "x-api-key"
    headers: ClassVar[dict[str, str]] = {"anthropic-version": VERSION}

    @cached_property
    def _binding(self) -> ThinkingBinding:
        return ThinkingBinding()

    def _url(self, request: Request) -> str:
        return f"{self._base.removesuffix('/messages').removesuffix('/v1')}/v1/messages"

    def _reader(self, request: Request) -> ReplyReader:
        return MessageReader(request.model, lambda: self._bound(request))

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        name = self._name(request)
        bound = self._bound(request)
        request = bound.request if bound is not None else self._placed(request)
        return messages_body(request, name, self._quirks[request.model], unfinished, self._histories)

    def _placed(self, request: Request) -> Request:
        """The request in a form that the server accepts."""
        quirks = self._quirks[request.model]
        request = _with_signed_summary(request)
        if request.deferred and not (quirks.searches_tools and claude_searches_tools(request.model)):
            request = msgspec.structs.replace(request, deferred=())
        if request.status_placement != "keep":
            return request
        if not quirks.keeps_status:
            return msgspec.structs.replace(request, status_placement="append")
        if not quirks.changes_tools:
            return msgspec.structs.replace(request, tool_changes=None, tools=_changed_tools(request))
        return request

    def _bound(self, request: Request) -> BoundRequest | None:
        """The request with the thinking that its prefix fits; None if the server decides about that."""
        placed = self._placed(request)
        quirks = self._quirks[request.model]
        if not binds_thinking(request.model) or (request.status and placed.status_placement != "keep"):
            return None
        return self._binding.bind(placed) if quirks.thinking else None

    def _request_headers(self, request: Request, body: Json) -> dict[str, str]:
        request, thinking = self._placed(request), body.get("thinking", {})
        betas = [INTERLEAVED_THINKING] if thinking.get("type") == "enabled" and request.tools else []
        betas += [COMPACT] if request.summarize or _holds_summary(request) else []
        if "block_binding" in thinking:
            betas.append(BINDING_CONTROLS)
        if request.status_placement == "keep":
            sent = [*request.statuses, *([request.tool_changes] if request.tool_changes else [])]
            changes = [message for message in sent if message.added or message.removed]
            betas += [CLEAR_AT] if request.status or len(changes) < len(sent) else []
            betas += [TOOL_CHANGES] if changes else []
            if any(len(tool) > 1 for change in changes for tool in change.added):
                betas.append(INLINE_TOOLS)
        return {"anthropic-beta": ",".join(betas)} if betas else {}

    def _refusals(self, request: Request) -> Mapping[str, str]:
        found = {"drops_blocks": "block_binding|thinking-binding-controls"}
        if request.status_placement == "keep" and self._quirks[request.model].keeps_status:
            found["changes_tools"] = "tool_(?:addition|removal)|tool-changes|inline-tools"
            found["keeps_status"] = _REFUSED_STATUS
        if request.deferred:
            found["searches_tools"] = "defer_loading|tool_search"
        found |= {"eager": "eager_input_streaming", "effort": "output_config|effort"}
        return found | {"thinking": "thinking"}

    def _adapt(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        quirks, limit = self._quirks[request.model], _MAX_OUTPUT.search(body.raw)
        if limit and quirks.max_output is None and failure.status in (400, 422):
            quirks.max_output = int(limit[1])
            return True
        return super()._adapt(request, failure, body)

    def _without_thinking(self, request: Request) -> Request:
        if (bound := self._bound(request)) is not None:
            self._binding.refuse(bound.request)
        return super()._without_thinking(request)

    def _complete(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        """For a paused turn the last request's usage is the size of the context; the cost is that of all."""
        assert isinstance(reader, MessageReader)
        bound = self._bound(request)
        dropped = (bound.dropped if bound is not None else 0) + reader.dropped_thoughts
        moved = request.status_placement == "keep" and not self._quirks[request.model].keeps_status
        done = msgspec.structs.replace(done, dropped_thoughts=dropped, status_moved=moved)
        if len(reader.usages) < 2 or done.usage is None:
            return done
        from crushpy.llm.catalog import cost, lookup

        info = lookup(request.model)
        total = sum(cost(info, usage) for usage in reader.usages)
        return msgspec.structs.replace(done, usage=msgspec.structs.replace(done.usage, cost=total))


def _with_signed_summary(request: Request) -> Request:
    """The request with the vendor's own summary first, then the messages carried verbatim, then the rest of
    the seed, so that what precedes their thinking is what it was."""
    signed = request.signed_summary
    if signed is None or not request.return_thinking or _holds_summary(request):
        return request
    seed, *others = request.messages
    if seed.parts[1:]:  # the first of the messages carried verbatim was merged with the seed
        others.insert(0, msgspec.structs.replace(seed, parts=seed.parts[1:]))
    block = {**signed.block, BOUND_PREFIX: signed.prefix}
    first = Message(seed.id, "assistant", (Thinking("", (block,)),), model=request.model)
    place = next((index for index, each in enumerate(others, 1) if each.id == signed.after), 0)
    if signed.after and not place:
        return request
    rest = Message(signed.after or seed.id, "user", (Text(request.rest_of_seed),))
    messages = (first, *others[:place], rest, *others[place:])
    return msgspec.structs.replace(request, messages=messages)


def _holds_summary(request: Request) -> bool:
    return bool(request.messages) and signed_summary_of(request.messages[0]) is not None


def _changed_tools(request: Request) -> tuple[ToolSpec, ...]:
    """The tools in effect after all changes, for a server that only knows a fixed list."""
    tools = {tool.name: tool for tool in request.tools}
    known = dict(tools)
    last = {message.id: index for index, message in enumerate(request.messages)}
    changes = sorted(request.statuses, key=lambda status: last.get(status.message_id, -1))
    for change in (*changes, *((request.tool_changes,) if request.tool_changes else ())):
        for tool in change.added:
            if len(tool) > 1:
                known[tool["name"]] = ToolSpec(tool["name"], tool["description"], tool["input_schema"])
            tools[tool["name"]] = known[tool["name"]]
        for name in change.removed:
            tools.pop(name, None)
    return tuple(tools.values())
