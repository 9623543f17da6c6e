"""A stand-in for Claude's models that bind their thinking to everything before it, as documented."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

from scripted_llm.replies import Answer, Body, Call, Fail, Reply
from scripted_llm.server import ScriptedLLM

CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"
INLINE_TOOLS = "inline-tools-2026-09-15"
BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"
COMPACT = "compact-2026-09-04"
BOUND = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different "
    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
    '"drop_block".'
)


class BindingClaude:
    """Answers requests for which `reply` is asked, and refuses what the real server refuses."""

    def __init__(self, llm: ScriptedLLM, reply: Callable[["BindingClaude", Body], Reply]) -> None:
        self._llm = llm
        self._reply = reply
        self.answered: list[Body] = []
        """The requests of the agent that were answered; summaries are not among them."""
        self.refusals: list[str] = []
        self.refused_betas: tuple[str, ...] = ()
        """Beta headers that this server does not know."""
        self.refused_keys: tuple[str, ...] = ()
        self.summary = "Goal: go on. Done: the first steps."
        self.compactions: list[Body] = []
        self._summarised: dict[str, list[Body]] = {}
        llm.always(self.step)

    def step(self, body: Body) -> Answer:
        betas = self._llm.requests[-1].headers.get("anthropic-beta", "").split(",")
        if unknown := [beta for beta in betas if beta in self.refused_betas]:
            return self._refuse(f"Unexpected value(s) `{unknown[0]}` for the `anthropic-beta` header.")
        if problem := misplaced(body, betas):
            return self._refuse(problem)
        binding = body.get("thinking", {}).get("block_binding", {})
        if binding and BINDING_CONTROLS not in betas:
            return self._refuse("thinking.adaptive.block_binding: Extra inputs are not permitted")
        if problem := self._misplaced_summary(body, betas):
            return self._refuse(problem)
        if "compaction" in body and "compaction" in self.refused_keys:
            return self._refuse("compaction: Extra inputs are not permitted")
        invalid = mismatches(self._expanded(body))
        if invalid and binding.get("prefix_mismatch_behavior") != "drop_block":
            return self._refuse(BOUND.format(*invalid[0]))
        if "compaction" in body:
            return self._summarise(body)
        if not body.get("tools"):
            return Reply("Goal: go on. Done: the first steps.")
        self.answered.append(body)
        reply = self._reply(self, body)
        whole = self._expanded(body)
        signature = prefix_of(whole, len(whole["messages"]))
        return Reply(reply.text, thinking="Let me see.", signature=signature, calls=reply.calls)

    def _summarise(self, body: Body) -> Answer:
        """A signed block that stands for all messages of the request."""
        self.compactions.append(body)
        whole = self._expanded(body)["messages"]
        signature = f"summary {len(self._summarised)}"
        self._summarised[signature] = whole
        return Reply(self.summary, signature=signature, is_summary=True, finish="compaction")

    def _misplaced_summary(self, body: Body, betas: list[str]) -> str:
        """Why the signed summaries in a request are refused; empty if they are not."""
        found = [
            (index, block)
            for index, message in enumerate(body["messages"])
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "compaction"
        ]
        if (found or "compaction" in body) and COMPACT not in betas:
            return "compaction: Extra inputs are not permitted"
        if len(found) > 1 or any(index for index, _ in found):
            return "messages: the compaction block must be the first block"
        for _, block in found:
            if block["signature"] not in self._summarised or block["content"] != self.summary:
                return "messages.0.content.0: invalid signature of the compaction block"
        return ""

    def _expanded(self, body: Body) -> Body:
        """The request with the messages that a signed summary stands for."""
        first = body["messages"][0]["content"][0]
        if first["type"] != "compaction":
            return body
        replaced = self._summarised[first["signature"]]
        return {**body, "messages": [*replaced, *body["messages"][1:]]}

    def _refuse(self, message: str) -> Fail:
        self.refusals.append(message)
        return Fail(400, message=message)


def steps_of_a_turn(claude: BindingClaude, body: Body) -> Reply:
    """One call, then an answer."""
    last = body["messages"][-1]
    if last["role"] == "system":
        last = body["messages"][-2]
    if last["content"][-1].get("type") == "tool_result":
        return Reply("That is all.")
    return Reply("Looking.", calls=[Call("ls", {})])


def prefix_of(body: Body, index: int) -> str:
    """The digest of everything before the message at `index`, cache marks aside."""
    parts = [body.get("system"), body.get("tools"), body["messages"][:index]]
    return sha256(json.dumps(unmarked(parts), sort_keys=True).encode()).hexdigest()


def thoughts(body: Body) -> list[tuple[int, int]]:
    """The places of all thinking blocks."""
    return [
        (index, place)
        for index, message in enumerate(body["messages"])
        if message["role"] == "assistant"
        for place, block in enumerate(message["content"])
        if block["type"] == "thinking"
    ]


def mismatches(body: Body) -> list[tuple[int, int]]:
    """The places of thinking blocks that do not fit what precedes them."""
    return [
        (index, place)
        for index, place in thoughts(body)
        if body["messages"][index]["content"][place]["signature"] != prefix_of(body, index)
    ]


def visible_statuses(body: Body) -> list[str]:
    """The statuses that the model gets to see."""
    users = [index for index, message in enumerate(body["messages"]) if message["role"] == "user"]
    return [
        json.dumps(message["content"])
        for index, message in enumerate(body["messages"])
        if message["role"] == "system"
        and "<context_status>" in json.dumps(message["content"])
        and (message.get("clear_at") != "next_user_message" or index > users[-1])
    ]


def misplaced(body: Body, betas: list[str]) -> str:
    """Why the system messages between others are refused; empty if they are not."""
    messages = body["messages"]
    for index, message in enumerate(messages):
        if message["role"] != "system":
            continue
        before = messages[index - 1]["role"] if index else ""
        after = messages[index + 1]["role"] if index + 1 < len(messages) else "assistant"
        if before != "user" or after != "assistant":
            return f"messages.{index}: a system message must follow a user message"
        blocks: list[Body] = message["content"] if isinstance(message["content"], list) else []
        changes = [block for block in blocks if block["type"] in ("tool_addition", "tool_removal")]
        if message.get("clear_at") and (CLEAR_AT not in betas or changes):
            return f"messages.{index}.clear_at: Extra inputs are not permitted"
        if changes and TOOL_CHANGES not in betas:
            return f"messages.{index}.content.0: tool_addition is not supported"
        for change in changes:
            names = [tool["name"] for tool in body.get("tools", [])]
            if change["tool"]["type"] == "tool_definition" and INLINE_TOOLS not in betas:
                return f"messages.{index}.content.0: inline tool_addition needs {INLINE_TOOLS}"
            if change["tool"]["type"] == "tool_reference" and not _known(
                change["tool"]["name"], names, messages
            ):
                return f"messages.{index}.content.0: unknown tool"
    return ""


def _known(name: str, names: list[str], messages: list[dict[str, Any]]) -> bool:
    return name in names or f'"definition": {{"name": "{name}"' in json.dumps(messages)


def unmarked(value: object) -> object:
    if isinstance(value, dict):
        found = cast("dict[str, object]", value)
        return {key: unmarked(each) for key, each in found.items() if key != "cache_control"}
    return [unmarked(each) for each in cast("list[object]", value)] if isinstance(value, list) else value
