"""Counts sessions of other agents again, from their files: `python -m benchmarks.recount FOLDER`.

The files below FOLDER/claude, codex, pi and opencode (exports) are counted by the format alone, imported into
a new database, and compared: prompts, replies, calls, results, tokens; and the cost of a replay "as recorded"
with the recorded usage at list prices. Exits with 1 if a figure differs, or a cost by more than 3%.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crushpy.core.messages import Message
from crushpy.engine.compaction.replay import replay_session
from crushpy.engine.models import Models
from crushpy.engine.session.importing import SessionImporter
from crushpy.importers import find_source
from crushpy.importers.normalise import INTERRUPTED
from crushpy.llm.catalog import lookup
from crushpy.llm.learnt import LearntModels
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

MAX_COST_DIFFERENCE = 0.03
GENERATED = {
    "claude": ("<command-", "<local-command-", "<system-reminder", "<bash-"),
    "codex": (
        *(
            "<environment_context",
            "<user_instructions",
            "<permissions instructions",
            "<turn_aborted",
            "<skill",
        ),
        *("<collaboration_mode", "<subagent_notification", "<INSTRUCTIONS", "# AGENTS.md instructions"),
    ),
}
"""How texts begin that a program writes in the user's name."""
NAMES = ("prompts", "replies", "calls", "results", "input", "output", "read", "written", "1 hour")


class Call(NamedTuple):
    """The usage of one model call, as the file has it."""

    model: str
    given: int = 0
    output: int = 0
    read: int = 0
    written: int = 0
    hour: int = 0


class Count(NamedTuple):
    prompts: int
    replies: int
    calls: int
    results: int
    used: list[Call]

    @property
    def figures(self) -> tuple[int, ...]:
        sums = (sum(call[place] for call in self.used) for place in range(1, 6))
        return self.prompts, self.replies, self.calls, self.results, *sums


def lines_of(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def matched(calls: list[str], results: list[str]) -> int:
    """Results that answer a call, each call once."""
    return len(set(calls) & set(results))


# --- Claude Code: lines of one reply share message.id; the last one has the final usage -------------------


def count_claude(file: Path) -> Count:
    lines = [line for line in lines_of(file) if not line.get("isSidechain")]
    lines = branch_of(lines)
    prompts = 0
    replies: dict[str, Call] = {}
    spoken: set[str] = set()
    calls: list[str] = []
    results: list[str] = []
    for line in lines:
        message = line.get("message") or {}
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if line["type"] == "assistant" and not line.get("isApiErrorMessage"):
            if message["model"] == "<synthetic>":
                continue
            used = message.get("usage") or {}
            lasting = (used.get("cache_creation") or {}).get("ephemeral_1h_input_tokens", 0)
            keys = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            replies[message["id"]] = Call(message["model"], *(used.get(key) or 0 for key in keys), lasting)
            for block in blocks:
                if block.get("text") or block.get("thinking") or block["type"] == "tool_use":
                    spoken.add(message["id"])
                if block["type"] == "tool_use" and block["id"] not in calls:
                    calls.append(block["id"])
        elif line["type"] == "user" and not line.get("isMeta") and not line.get("isCompactSummary"):
            results += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            prompts += any(
                block["type"] in ("image", "document")
                or (
                    block["type"] == "text"
                    and block["text"].strip()
                    and not block["text"].lstrip().startswith(GENERATED["claude"])
                )
                for block in blocks
            )
    return Count(prompts, len(spoken), len(calls), matched(calls, results), list(replies.values()))


def branch_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines from which the last message descends, with all lines of their replies and their results."""
    by_id = {line["uuid"]: line for line in reversed(lines) if line.get("uuid")}
    before: dict[str, str] = {}
    previous = last = ""
    for line in lines:
        if line.get("uuid"):
            before[line["uuid"]] = previous
            previous = line["uuid"]
            last = previous if (line.get("message") or {}).get("content") else last
    kept: set[str] = set()
    while last and last not in kept:
        kept.add(last)
        above = by_id[last].get("parentUuid") or by_id[last].get("logicalParentUuid") or ""
        starts = not above and not by_id[last].get("isCompactSummary") and not by_id[last].get("subtype")
        last = above if above in by_id else "" if starts else before[last]

    def reply(line: dict[str, Any]) -> str:
        return (line.get("message") or {}).get("id", "") if line["type"] == "assistant" else ""

    def tools(line: dict[str, Any], *keys: str) -> set[str]:
        content = (line.get("message") or {}).get("content")
        blocks = content if isinstance(content, list) else []
        return {block[key] for block in blocks for key in keys if block.get(key)}

    replies = {reply(line) for line in lines if line.get("uuid") in kept} - {""}
    asked = set().union(*(tools(line, "id") for line in lines if reply(line) in replies), set())
    return [
        line
        for line in lines
        if line.get("type") in ("user", "assistant")
        and (line.get("uuid") in kept or reply(line) in replies or tools(line, "tool_use_id") & asked)
    ]


# --- Codex: items of a reply follow each other; token_count reports each model call once or repeatedly ----


def count_codex(file: Path) -> Count:
    prompts = replies = 0
    calls: list[str] = []
    results: list[str] = []
    used: list[Call] = []
    model, total, in_reply, said = "", None, False, ""
    for line in lines_of(file):
        item = line.get("payload") or line
        kind = item.get("type")
        if line.get("type") == "turn_context":
            model = item.get("model") or model
        elif kind == "token_count" and (info := item.get("info")):
            if "total_token_usage" not in info or info["total_token_usage"] != total:
                now, last = info.get("total_token_usage") or {}, info["last_token_usage"]
                # By the totals, which also grow with calls that are not reported, those of aborted turns.
                grown = {key: now.get(key, 0) - total[key] for key in last} if total else last
                total, cached = now, grown.get("cached_input_tokens", 0)
                used.append(
                    Call(model, max(0, grown["input_tokens"] - cached), grown["output_tokens"], cached)
                )
                in_reply = False
        elif line.get("type") == "compacted" and item.get("message"):
            replies -= bool(said) and said in item["message"]  # the summary itself
            said, in_reply = "", False
        elif line.get("type") != "response_item":
            continue
        elif kind in ("function_call_output", "custom_tool_call_output"):
            results.append(item["call_id"])
            in_reply = False
        elif kind == "message" and item["role"] == "user":
            texts = [block.get("text") for block in item["content"]]
            if any(text is None or not text.lstrip().startswith(GENERATED["codex"]) for text in texts):
                prompts += 1
                in_reply = False
        elif speaks(item):
            replies += not in_reply
            in_reply = True
            said = "".join(block.get("text") or "" for block in item.get("content") or ())
            calls += [item["call_id"]] if "call_id" in item else []
    return Count(prompts, replies, len(calls), matched(calls, results), used)


def speaks(item: dict[str, Any]) -> bool:
    if item["type"] == "message":
        return item["role"] == "assistant" and any(block.get("text") for block in item["content"])
    if item["type"] == "reasoning":
        return any(entry.get("text") for entry in item.get("summary") or ())
    return item["type"] in ("function_call", "custom_tool_call", "local_shell_call")


# --- pi: one message an entry ----------------------------------------------------------------------------


def count_pi(file: Path) -> Count:
    lines = [line for line in lines_of(file) if line["type"] != "session"]
    entries = {line["id"]: line for line in lines if "id" in line}
    detached = ("label", "session_info")
    name = next((name for name in reversed(entries) if entries[name]["type"] not in detached), "")
    kept: list[dict[str, Any]] = []
    while name in entries:
        kept.append(entries[name])
        name = entries[name].get("parentId") or ""
    prompts = replies = 0
    calls: list[str] = []
    results: list[str] = []
    used: list[Call] = []
    for entry in kept or lines:  # early files have no tree
        message = entry.get("message") or {}
        content = message.get("content") or ()
        if message.get("role") == "user":
            prompts += bool(content)
        elif message.get("role") == "toolResult":
            results.append(message["toolCallId"])
        elif message.get("role") == "assistant":
            figures = message.get("usage") or {}
            counts = (figures.get(key, 0) for key in ("input", "output", "cacheRead", "cacheWrite"))
            used.append(Call(f"{message['provider']}/{message['model']}", *counts))
            replies += any(block["type"] == "toolCall" or block.get(block["type"]) for block in content)
            calls += [block["id"] for block in content if block["type"] == "toolCall"]
    return Count(prompts, replies, len(calls), matched(calls, results), used)


# --- `opencode export`: messages with parts; a tool's part is the call and its result ---------------------


def count_opencode(file: Path) -> Count:
    prompts = replies = calls = results = 0
    used: list[Call] = []
    for message in json.loads(file.read_text(encoding="utf-8"))["messages"]:
        info, parts = message["info"], message["parts"]
        shown = [part for part in parts if part["type"] in ("text", "reasoning", "tool", "file")]
        shown = [part for part in shown if part.get("text", "x").strip() and not part.get("ignored")]
        if info["role"] == "user":
            prompts += bool(shown)
            continue
        steps: list[int] = [0]
        for part in parts:
            steps += [0] if part["type"] == "step-start" else []
            steps[-1] += part in shown
        tools = [part["state"]["status"] for part in parts if part["type"] == "tool"]
        calls, results = calls + len(tools), results + tools.count("completed") + tools.count("error")
        replies += sum(map(bool, steps)) * (info.get("summary") is not True)
        finished = [part for part in parts if part["type"] == "step-finish" and part.get("tokens")]
        for tokens in (step["tokens"] for step in finished or [info]):
            output = tokens["output"] + (0 if "total" in tokens else tokens["reasoning"])
            cache = tokens["cache"]
            model = f"{info['providerID']}/{info['modelID']}"
            used.append(Call(model, tokens["input"], output, cache.get("read", 0), cache.get("write", 0)))
    return Count(prompts, replies, calls, results, used)


COUNTERS = {"claude": count_claude, "codex": count_codex, "pi": count_pi, "opencode": count_opencode}


def cost_of(call: Call, vendor: str) -> float:
    """At list prices, by our table; those of a long request if the model has them."""
    info = lookup(call.model if "/" in call.model else f"{vendor}/{call.model}")
    asked = call.given + call.read + call.written
    prices = info.long if info.long is not None and asked > info.long.over else info
    given = prices.input_cost or 0.0
    read = given if prices.cache_read_cost is None else prices.cache_read_cost
    written = given if prices.cache_write_cost is None else prices.cache_write_cost
    hour = written if prices.hour_write_cost is None else prices.hour_write_cost
    paid = call.given * given + call.output * (prices.output_cost or 0.0) + call.read * read
    return (paid + (call.written - call.hour) * written + call.hour * hour) / 1_000_000


# --- what was stored -------------------------------------------------------------------------------------


async def stored_figures(file: Path, agent: str, home: Path) -> tuple[tuple[int, ...], float, float]:
    """The same figures of the imported session, the cost of its replay, and that of the source if known."""
    source, store = find_source(file), Store(home / f"{file.stem}.db")
    if source is None or source.name != agent:
        raise SystemExit(f"{file}: taken for a session of {source.name if source else 'no agent'}")
    importer = SessionImporter(store, compaction="auto")
    [made] = [outcome async for outcome in importer.run(source, source.sessions(file))]
    sessions = await store.sessions.load_conversation(made.id)
    messages: list[Message] = []
    for session in sessions:
        messages += await store.messages.load(session.id)
    results = [message.result for message in messages if message.result is not None]
    usages = [session.usage for session in sessions]
    settings = Settings()
    models = Models(settings, LearntModels(home / "learnt.json"))
    [replayed] = await replay_session(store, made.tip, settings, models)
    await models.close()
    await store.close()
    figures = (
        sum(message.role == "user" and message.seed is None for message in messages),
        sum(message.role == "assistant" for message in messages),
        sum(len(message.calls) for message in messages),
        sum(result.text != INTERRUPTED for result in results),
        sum(usage.input_tokens for usage in usages),
        sum(usage.output_tokens for usage in usages),
        sum(usage.cache_read_tokens for usage in usages),
        sum(usage.cache_write_tokens for usage in usages),
        sum(message.usage.hour_write_tokens for message in messages if message.usage),
    )
    return figures, replayed.usage.cost, sum(usage.cost for usage in usages)


def compare(folder: Path) -> Iterator[tuple[str, bool]]:
    """A row of the table for each file, and whether all of it agrees."""
    for agent, count in COUNTERS.items():
        for file in sorted((folder / agent).rglob("*.json*")):
            counted = count(file)
            with tempfile.TemporaryDirectory() as home:
                stored, replayed, source = asyncio.run(stored_figures(file, agent, Path(home)))
            wanted = sum(
                cost_of(call, "openai" if agent == "codex" else "anthropic") for call in counted.used
            )
            difference = abs(replayed - wanted) / wanted if wanted else 0.0
            figures = zip(NAMES, counted.figures, stored, strict=True)
            wrong = [f"{name} {theirs:,} != {ours:,}" for name, theirs, ours in figures if theirs != ours]
            agrees = not wrong and difference <= MAX_COST_DIFFERENCE
            cells = [f"{agent}/{file.stem[:30]}", *(f"{figure:,}" for figure in counted.figures)]
            cells += [f"{wanted:.2f}" if wanted else "-", f"{replayed:.2f}", f"{difference:.1%}"]
            cells += [f"{source:.2f}" if source else "-", "; ".join(wrong) or ("same" if agrees else "cost")]
            yield f"| {' | '.join(cells)} |", agrees


def main() -> None:
    names = ("session", *NAMES, "recorded $", "replayed $", "difference", "source's own $", "stored")
    print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}", flush=True)
    agreeing: list[bool] = []
    for row, agrees in compare(Path(sys.argv[1])):
        print(row, flush=True)
        agreeing.append(agrees)
    print(f"{sum(agreeing)} of {len(agreeing)} sessions agree.")
    sys.exit(0 if agreeing and all(agreeing) else 1)


if __name__ == "__main__":
    main()
