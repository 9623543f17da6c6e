"""Commands about the app and its state: help, status, settings, rules, jobs, changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.messages import counted
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.actions.action_registry import performs
from crushpy.tui.actions.sessions import refuse_while_busy
from crushpy.tui.textual_adapter import app_of

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.tui.screens.chat_host import ChatHost


@performs("help")
async def show_help(chat: "ChatHost", argument: str) -> None:
    from crushpy.tui.screens.help import HelpScreen

    keys = msgspec.structs.asdict(chat.conversation.settings.keys) if chat.conversation else {}
    await chat.show(HelpScreen(keys=keys))


@performs("glossary")
async def show_words(chat: "ChatHost", argument: str) -> None:
    from crushpy.tui.screens.help import GlossaryScreen

    await chat.show(GlossaryScreen())


@performs("copy_reply")
async def copy_last_reply(chat: "ChatHost", argument: str) -> None:
    history = chat.conversation.history if chat.conversation else ()
    reply = next(
        (one.text for one in reversed(history) if one.role == "assistant" and one.says_something), ""
    )
    if not reply:
        chat.say("There is no reply to copy yet.", warning=True)
        return
    await chat.copy(reply)


@performs("fold_all")
async def fold_or_unfold_all(chat: "ChatHost", argument: str) -> None:
    chat.folded = not chat.folded
    chat.transcript.fold_all(chat.folded)


@performs("redraw")
async def redraw(chat: "ChatHost", argument: str) -> None:
    """Clears the terminal and draws everything again."""
    from crushpy.tui.terminal.raw_mode import WIPE
    from crushpy.tui.textual_adapter import write_to_terminal

    app = app_of(chat)
    write_to_terminal(app, WIPE)
    app.screen.refresh()


@performs("quit")
async def quit_app(chat: "ChatHost", argument: str) -> None:
    await chat.leave()


@performs("todos")
async def open_or_fold_todos(chat: "ChatHost", argument: str) -> None:
    if not chat.todos.toggle():
        chat.say("There are no open todos.")


MAX_DIFF_CHARS = 60_000
"""Characters of a diff that are shown or sent; the rest is only counted."""


@performs("status")
async def show_status(chat: "ChatHost", argument: str) -> None:
    """Model, folder, context, mode and sandbox at a glance."""
    conversation = chat.open_conversation
    await conversation.context.count_exactly()
    info, budget = conversation.info, conversation.context.budget()
    about, unknown = ("~" if budget.estimated else ""), ("" if budget.window_known else "?")
    rows = {
        "model": f"{info.model}, thinking effort {conversation.settings.effort or 'default'}",
        "folder": chat.options.cwd,
        "session": f"{info.id}, session {info.generation + 1} of its conversation",
        "context": f"{about}{budget.used:,} of {budget.window:,}{unknown} tokens ({about}{budget.used_pct}%)"
        f", compaction {info.compaction}",
        "mode": conversation.mode,
        "sandbox": conversation.sandbox or _no_sandbox(conversation.why_no_sandbox),
        "jobs": ", ".join(job.id for job in conversation.running_jobs) or "none",
    }
    chat.say("\n".join(f"{name:<8} {one_line(value)}" for name, value in rows.items()))


@performs("config")
async def show_config(chat: "ChatHost", argument: str) -> None:
    """Shows the settings that were changed and where; with a key and a value, sets one."""
    words = argument.split(None, 1)
    if len(words) == 2:
        chat.say(_set_setting(*words))
        return
    rows = _changed_settings(Path(chat.options.cwd), words[0] if words else "")
    rows.append("/config KEY VALUE sets one; `crushpy config list --all` explains all settings.")
    chat.say("\n".join(rows))


def _changed_settings(cwd: Path, key: str) -> list[str]:
    """Settings that were changed, one line each with its layer; with a `key` all that begin with it."""
    from crushpy.bootstrap import ProjectEnvironment
    from crushpy.settings.setting_keys import parse_key

    loaded = ProjectEnvironment(cwd).loaded
    rows: list[str] = []
    for name, origin in loaded.origins.items():
        if name.startswith(key) if key else origin != "default":
            value: Any = msgspec.to_builtins(loaded.settings)
            for part in parse_key(name):
                value = value.get(part, "")
            rows.append(f"{name} = {value!r}  ({origin})")
    return rows or [f"No setting begins with {key}." if key else "No setting was changed."]


def _set_setting(key: str, value: str) -> str:
    """Stores a setting; returns the message for the user."""
    from crushpy.core.paths import Paths
    from crushpy.settings import set_value

    if key.startswith("permissions."):
        return f"Rules cannot be set here. Run crushpy config set {key} ..."
    return f"{key} is set in {set_value(Paths(), key, value)}; it applies from the next start."


@performs("permissions")
async def show_permissions(chat: "ChatHost", argument: str) -> None:
    """The active rules, and what was granted in this conversation."""
    conversation = chat.open_conversation
    rules = conversation.settings.permissions
    rows = [f"mode: {conversation.mode} (Shift+Tab)"]
    for kind, given in (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow)):
        rows += [f"{kind:<6} {one_line(rule)}" for rule in given]
    rows += [f"here   {one_line(rule)}" for rule in conversation.info.grants]
    if len(rows) == 1:
        rows.append("There are no rules: crushpy asks about everything that is not known to be harmless.")
    rows.append("`crushpy permissions revoke RULE` removes a rule; `crushpy permissions test` tries them.")
    if conversation.info.grants:
        rows.append(f"Granted here: `crushpy permissions revoke RULE --session {conversation.info.id}`.")
    chat.say("\n".join(rows))


@performs("jobs")
async def show_jobs(chat: "ChatHost", argument: str) -> None:
    """The running background jobs, with the last lines of their output."""
    conversation = chat.open_conversation
    jobs = conversation.running_jobs
    if not jobs:
        chat.say("No job is running.")
        return
    rows: list[str] = []
    for job in jobs:
        rows.append(f"{job.id}  {job.seconds:.0f} s  {one_line(job.command)}")
        rows += [f"    {line}" for line in clean(job.last_lines).splitlines()[-5:]]
    chat.say("\n".join(rows))


@performs("diff")
async def show_diff(chat: "ChatHost", argument: str) -> None:
    """What this conversation changed in files."""
    text = await changed(chat.open_conversation)
    if text:
        from crushpy.tui.items import ReplyItem

        chat.transcript.add(ReplyItem(f"```diff\n{text}\n```"))
    else:
        chat.say("This conversation has not changed any file.")


@performs("review")
async def review_changes(chat: "ChatHost", argument: str) -> None:
    """Asks the agent to review what this conversation changed."""
    conversation = chat.open_conversation
    text = await changed(conversation)
    if not text:
        chat.say("There is nothing to review: this conversation has not changed any file.", warning=True)
        return
    focus = f" Look above all at: {argument.strip()}." if argument.strip() else ""
    conversation.submit(
        "Review this change as a careful colleague would: mistakes first, with file and line, then what is "
        f"unclear or missing (tests, documentation). Change nothing.{focus}\n\n```diff\n{text}\n```"
    )


@performs("init")
async def write_instructions(chat: "ChatHost", argument: str) -> None:
    """Asks the agent to write AGENTS.md from the project's files, and to show it first."""
    conversation = chat.open_conversation
    if refuse_while_busy(chat):
        return
    there = (Path(chat.options.cwd) / "AGENTS.md").exists()
    conversation.submit(
        f"{'Improve the AGENTS.md of' if there else 'Write an AGENTS.md for'} this project: what an engineer "
        "who has never seen it must know to work on it well. Look at the files first: how to build, test and "
        "lint (also a single test), how the code is laid out, what its conventions are. Only what you have "
        "seen, at most 60 lines, no general advice. Show me its whole text in "
        "your reply, then write it to AGENTS.md.",
        mode="ask",  # the question about the file is what shows it first
    )


async def changed(conversation: "Conversation") -> str:
    """The changes of a conversation as one diff; secrets are redacted."""
    if not conversation.history:
        return ""
    _, found = await conversation.files.rewinder.changes(conversation.info.id)
    parts = [view.unified.strip("\n") or one_line(view.line) for _, view in found]
    text = clean(redact("\n".join(parts))).replace("```", "'''")
    if len(text) <= MAX_DIFF_CHARS:
        return text
    return f"{text[:MAX_DIFF_CHARS]}\n... {counted(len(text) - MAX_DIFF_CHARS, 'more character')}"


def _no_sandbox(why: str) -> str:
    return f"none: commands run with your privileges{f' ({why})' if why else ''}"
