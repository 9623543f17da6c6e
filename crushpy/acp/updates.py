"""Events and stored messages as updates of the protocol. Pure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.context.coverage import carried_words
from crushpy.core import messages
from crushpy.core.boundary import Boundary, carried_share, of_this_boundary
from crushpy.core.call_words import call_title
from crushpy.core.events import ApprovalNeeded
from crushpy.core.messages import BranchReport, Image, Json, Message
from crushpy.util.shown_paths import path_shortener

if TYPE_CHECKING:
    from crushpy.engine.session.session import OpenBranch

KINDS = {
    "read": ("view", "ls", "recall"),
    "search": ("glob", "grep"),
    "edit": ("edit", "multiedit", "write"),
    "execute": ("bash", "job_output", "job_kill"),
    "fetch": ("fetch",),
    "think": ("todos", "task"),
}
"""The kinds of calls that the protocol knows, and our tools of each."""
ANSWERS = {"once": "allow_once", "deny": "reject_once"}
"""The kinds of answers that the protocol knows; all others last."""
MAX_OUTPUT_CHARS = 20_000
_PATHS = ("file_path", "path")


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def chunk(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": text_block(text)}


def call_started(call_id: str, name: str, args: Json, cwd: str) -> Json:
    named = next((str(args[key]) for key in _PATHS if args.get(key)), "")
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call_id,
        "title": path_shortener((cwd,))(call_title(name, args)),
        "name": name,
        "kind": next((kind for kind, tools in KINDS.items() if name in tools), "other"),
        "status": "pending",
        "rawInput": args,
        "locations": [{"path": str(Path(cwd) / Path(named).expanduser())}] if named else [],
        "content": diffs(name, args, cwd),
    }


def tool_update(call_id: str, status: str, *content: Json) -> Json:
    update: Json = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
    return {**update, "content": list(content)} if content else update


def tool_finished(call_id: str, is_error: bool, *content: Json) -> Json:
    return tool_update(call_id, "failed" if is_error else "completed", *content)


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


def plan(todos: tuple[messages.Todo, ...]) -> Json:
    entries = [{"content": todo.text, "priority": "medium", "status": todo.status} for todo in todos]
    return {"sessionUpdate": "plan", "entries": entries}


def permission(event: ApprovalNeeded, cwd: str) -> Json:
    """The question about a call: all of it, why it asks, and the answers in the words of the app."""
    call = call_started(event.id, event.name, event.args, cwd)
    del call["sessionUpdate"]
    why = f"It asks because {event.reason}." if event.accesses else event.reason
    words = [event.title, why]
    words += [str(event.args.get("command", ""))] if event.name == "bash" else []
    if isinstance(event.preview, messages.Diff) and not call["content"]:
        words.append(event.preview.unified)
    shown = [{"type": "content", "content": text_block(text)} for text in words if text]
    options = [
        {
            "optionId": f"{choice.kind}:{choice.key}",
            "name": choice.label.removesuffix(" (Shift+Tab)"),  # a key of the app
            "kind": ANSWERS.get(choice.kind, "allow_always"),
        }
        for choice in event.choices
    ]
    return {"toolCall": {**call, "content": [*call["content"], *shown]}, "options": options}


# --- compaction -------------------------------------------------------------------------------------------


def compaction_update(compaction_id: str, status: str) -> Json:
    return {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status}


def compacted(compaction_id: str, boundary: Boundary | None, summary: str, *, native: bool) -> Json:
    """A compaction; for clients that know nothing of it, a call. `boundary`: None if its record is gone."""
    meta, sizes = dict[str, Json](), ""
    if boundary is not None:
        names = ("parent_id", "child_id", "trigger", "tokens_before", "tokens_after")
        known = {name: getattr(boundary, name) for name in names}
        meta = {"_meta": {"crushpy": {**known, "coverage": carried_share(boundary.facts)}}}
        carried = carried_words(of_this_boundary(boundary.facts), boundary.lineage)
        sizes = f": {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens"
        sizes += f", {carried}" if carried else ""
    if native:
        told = {"summary": [text_block(summary)]} if summary else {}
        return {**compaction_update(compaction_id, "completed"), **told, **meta}
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": f"compaction-{compaction_id}",
        "title": f"Context compacted{sizes}",
        "kind": "other",
        "status": "completed",
        "content": result_content(summary),
        **meta,
    }


# --- branches ---------------------------------------------------------------------------------------------


def inside(branches: "Sequence[OpenBranch]", update: Json) -> Json:
    """An update with the innermost of the open branches as its place."""
    if not branches:
        return update
    last, own = branches[-1], update.get("_meta", {}).get("crushpy", {})
    place = {"session_id": last.session_id, "parent_id": last.parent_id, "goal": last.goal}
    return {**update, "_meta": {"crushpy": {"branch": {**place, "depth": len(branches)}, **own}}}


def branch_opened(call_id: str, session_id: str, goal: str, status: str = "in_progress") -> Json:
    """The call that opened it is in progress until it returns; one of the user's is shown as a call."""
    if call_id:
        return tool_update(call_id, status)
    shown: Json = {"sessionUpdate": "tool_call", "toolCallId": f"branch-{session_id}", "kind": "other"}
    return {**shown, "title": f"branch {goal}", "status": status}


def branch_returned(call_id: str, report: BranchReport, *, interrupted: bool) -> Json:
    """What is left of a branch. Without a `call_id`: of one of the user's that was not shown before."""
    status = "failed" if interrupted else "completed"
    update = branch_opened(call_id, report.session_id, report.goal, status)
    figures = ("session_id", "goal", "calls", "tokens", "folded", "cost")
    meta = {"crushpy": {"returned": {name: getattr(report, name) for name in figures}}}
    title = f"branch {report.goal}: {report}"
    return {**update, "title": title, "content": result_content(report.text), "_meta": meta}


# --- history ----------------------------------------------------------------------------------------------


def replay_message(message: Message, passed: Iterator[Boundary], cwd: str, *, native: bool) -> Iterator[Json]:
    """A stored message. `passed`: the compactions from here on, in order."""
    for part in message.parts:
        match part:
            case messages.Seed():
                yield compacted(message.id, next(passed, None), part.summary, native=native)
            case messages.Note() if part.branch is not None:
                yield branch_returned("", part.branch, interrupted=False)
            case messages.Text() if message.role == "user":
                yield chunk("user_message_chunk", part.text)
            case messages.Text():
                yield chunk("agent_message_chunk", part.text)
            case messages.Thinking() if part.text:
                yield chunk("agent_thought_chunk", part.text)
            case messages.ToolCall():
                yield call_started(part.id, part.name, part.args, cwd)
            case _:
                pass
    result = message.result
    if result is not None and isinstance(result.display, BranchReport):
        yield branch_returned(result.call_id, result.display, interrupted=bool(result.ended))
    elif result is not None:
        content = result_content(result.text, result.images)
        yield tool_finished(result.call_id, result.is_error, *content)
