"""Events and stored messages as updates of the protocol. Pure."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.boundary import Boundary, carried_share
from crushpy.core.events import ApprovalNeeded, BoundaryCommitted
from crushpy.core.messages import Diff, Image, Json, Message, Seed, Text, Thinking, Todo, ToolCall, headline

KINDS = {
    "view": "read",
    "ls": "read",
    "recall": "read",
    "glob": "search",
    "grep": "search",
    "edit": "edit",
    "multiedit": "edit",
    "write": "edit",
    "bash": "execute",
    "job_output": "execute",
    "job_kill": "execute",
    "fetch": "fetch",
    "todos": "think",
    "task": "think",
}
LASTING = {"once": "Allow once", "conversation": "Allow in this conversation", "always": "Always allow"}
MAX_OUTPUT_CHARS = 20_000
_PATHS = ("file_path", "path")


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def chunk(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": text_block(text)}


def call_started(call_id: str, name: str, args: Json, cwd: str, status: str = "pending") -> Json:
    """A call as it begins."""
    line = headline(name, args)
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call_id,
        "title": f"{name} {line}".strip(),
        "name": name,
        "kind": KINDS.get(name, "other"),
        "status": status,
        "rawInput": args,
        "locations": _locations(args, cwd),
        "content": diffs(name, args, cwd),
    }


def tool_update(call_id: str, status: str, *content: Json) -> Json:
    update: Json = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
    return {**update, "content": list(content)} if content else update


def output_content(text: str) -> Json:
    return {"type": "content", "content": text_block(text[-MAX_OUTPUT_CHARS:])}


def result_content(text: str, images: tuple[Image, ...] = ()) -> list[Json]:
    found = [output_content(text)] if text else []
    for image in images:
        block = {"type": "image", "data": image.data, "mimeType": image.media_type}
        found.append({"type": "content", "content": block})
    return found


def diffs(name: str, args: Json, cwd: str) -> list[Json]:
    """What an edit would replace, as far as its arguments say."""
    path = str(Path(cwd) / str(args.get("file_path", "")))
    if name == "write":
        return [{"type": "diff", "path": path, "newText": str(args.get("content", ""))}]
    edits: list[Json] = [args] if name == "edit" else args.get("edits") or [] if name == "multiedit" else []
    return [
        {
            "type": "diff",
            "path": path,
            "oldText": str(edit.get("old_string", "")),
            "newText": str(edit.get("new_string", "")),
        }
        for edit in edits
    ]


def _locations(args: Json, cwd: str) -> list[Json]:
    named = next((str(args[key]) for key in _PATHS if args.get(key)), "")
    return [{"path": str(Path(cwd) / Path(named).expanduser())}] if named else []


def plan(todos: tuple[Todo, ...]) -> Json:
    entries = [{"content": todo.text, "priority": "medium", "status": todo.status} for todo in todos]
    return {"sessionUpdate": "plan", "entries": entries}


def permission(event: ApprovalNeeded, cwd: str) -> Json:
    """The question about a call: all of it, what it needs, why it asks, and each answer with its rule."""
    call = call_started(event.id, event.name, event.args, cwd)
    del call["sessionUpdate"]
    words = [event.says or call["title"], f"It asks because {event.reason}."]
    for access in event.accesses:
        needs = access.needs
        if needs.network or needs.hosts:
            words.append(f"It needs the network: {', '.join(needs.hosts) or 'all of it'}.")
        if needs.write:
            words.append(f"It writes to {', '.join(needs.write)}.")
    shown = [{"type": "content", "content": text_block("\n".join(words))}]
    if event.name == "bash":
        shown.append({"type": "content", "content": text_block(str(event.args.get("command", "")))})
    if isinstance(event.preview, Diff) and not call["content"]:
        shown.append({"type": "content", "content": text_block(event.preview.unified)})
    options: list[Json] = []
    for choice in event.choices:
        if choice.kind == "deny":
            continue
        rules = "; ".join(choice.rules) or choice.covers
        if choice.kind == "always":
            rules += " in all projects" if choice.all_projects else " in this project"
        options.append(
            {
                "optionId": f"{choice.kind}:{choice.key}",
                "name": f"{LASTING[choice.kind]}: {rules}" if rules else LASTING[choice.kind],
                "kind": "allow_once" if choice.kind == "once" else "allow_always",
            }
        )
    options.append({"optionId": "deny:", "name": "Refuse", "kind": "reject_once"})
    return {"toolCall": {**call, "content": [*call["content"], *shown]}, "options": options}


# --- compaction -------------------------------------------------------------------------------------------


def boundary_meta(boundary: Boundary, share: float | None) -> Json:
    return {
        "crushpy": {
            "parent_id": boundary.parent_id,
            "child_id": boundary.child_id,
            "trigger": boundary.trigger,
            "tokens_before": boundary.tokens_before,
            "tokens_after": boundary.tokens_after,
            "coverage": share,
        }
    }


def compaction_update(compaction_id: str, status: str, summary: str = "", meta: Json | None = None) -> Json:
    update: Json = {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status}
    if summary:
        update["summary"] = [text_block(summary)]
    return {**update, "_meta": meta} if meta else update


def compaction_call(compaction_id: str, title: str, summary: str, meta: Json) -> Json:
    """The same for clients that know nothing of compaction."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": f"compaction-{compaction_id}",
        "title": title,
        "kind": "other",
        "status": "completed",
        "content": result_content(summary),
        "_meta": meta,
    }


def compacted(event: BoundaryCommitted, compaction_id: str, *, native: bool) -> Json:
    meta = boundary_meta(event, event.coverage)
    if native:
        return compaction_update(compaction_id, "completed", event.summary, meta)
    title = f"Context compacted: {event.tokens_before:,} -> {event.tokens_after:,} tokens"
    return compaction_call(compaction_id, title, event.summary, meta)


# --- history ----------------------------------------------------------------------------------------------


def replay_history(
    messages: Sequence[Message], boundaries: Sequence[Boundary], cwd: str, *, native: bool
) -> Iterator[Json]:
    """A stored conversation from its root to its tip. `boundaries`: those on the way, in order."""
    passed = iter(boundaries)
    for message in messages:
        for part in message.parts:
            match part:
                case Seed():
                    boundary = next(passed, None)
                    share = carried_share(boundary.facts) if boundary is not None else None
                    meta = boundary_meta(boundary, share) if boundary is not None else {}
                    if native:
                        yield compaction_update(message.id, "completed", part.summary, meta)
                    else:
                        yield compaction_call(message.id, "Context compacted", part.summary, meta)
                case Text() if message.role == "user":
                    yield chunk("user_message_chunk", part.text)
                case Text():
                    yield chunk("agent_message_chunk", part.text)
                case Thinking() if part.text:
                    yield chunk("agent_thought_chunk", part.text)
                case ToolCall():
                    yield call_started(part.id, part.name, part.args, cwd)
                case _:
                    pass
        if message.result is not None:
            result = message.result
            status = "failed" if result.is_error else "completed"
            yield tool_update(result.call_id, status, *result_content(result.text, result.images))
