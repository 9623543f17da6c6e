"""Commands about the app and its state: help, status, settings, rules, jobs, changes."""

from pathlib import Path
from typing import Any

import msgspec

from crushpy.core.messages import counted
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ReplyItem
from crushpy.tui.textual_adapter import app_of, write_to_terminal

MAX_DIFF_CHARS = 60_000
"""Characters of a diff that are shown or sent; the rest is only counted."""


class OverviewCommands(CommandGroup):
    async def help(self, argument: str) -> None:
        from crushpy.tui.screens.help import HelpScreen

        keys = msgspec.structs.asdict(self.chat.conversation.settings.keys) if self.chat.conversation else {}
        await self.show(HelpScreen(keys))

    async def glossary(self, argument: str) -> None:
        from crushpy.tui.screens.help import GlossaryScreen

        await self.show(GlossaryScreen())

    async def copy_reply(self, argument: str) -> None:
        history = self.chat.conversation.history if self.chat.conversation else ()
        replies = [one.text for one in history if one.role == "assistant" and one.says_something]
        if not replies:
            raise RefusedCommand("There is no reply to copy yet.")
        await self.chat.copy(replies[-1])

    async def fold_all(self, argument: str) -> None:
        self.chat.folded = not self.chat.folded
        self.chat.transcript.fold_all(self.chat.folded)

    async def redraw(self, argument: str) -> None:
        """Clears the terminal and draws everything again."""
        from crushpy.tui.terminal.raw_mode import WIPE

        app = app_of(self.chat)
        write_to_terminal(app, WIPE)
        app.screen.refresh()

    async def hooks(self, argument: str) -> None:
        self.chat.transcript.add(ReplyItem(self.conversation.hooks.describe()))

    async def quit(self, argument: str) -> None:
        await self.chat.leave()

    async def todos(self, argument: str) -> None:
        if not self.chat.todos.toggle():
            self.say("There are no open todos.")

    async def status(self, argument: str) -> None:
        """Model, folder, context, mode and sandbox at a glance."""
        from crushpy.tui.screens.inspector import figures

        conversation, info = self.conversation, self.conversation.info
        await conversation.context.count_exactly()
        no_sandbox = "none: commands run with your privileges"
        if why := conversation.why_no_sandbox:
            no_sandbox += f" ({why})"
        rows = {
            "model": f"{info.model}, thinking effort {conversation.settings.effort or 'default'}",
            "folder": self.chat.options.cwd,
            "session": f"{info.id}, session {info.generation + 1} of its conversation",
            "context": f"{figures(conversation.context.budget())}, compaction {info.compaction}",
            "mode": conversation.mode,
            "sandbox": conversation.sandbox or no_sandbox,
            "jobs": ", ".join(job.id for job in conversation.running_jobs) or "none",
        }
        self.say("\n".join(f"{name:<8} {one_line(value)}" for name, value in rows.items()))

    async def config(self, argument: str) -> None:
        """Shows the settings that were changed and where; with a key and a value, sets one."""
        words = argument.split(None, 1)
        if len(words) == 2:
            self.say(_set_setting(*words))
            return
        rows = _changed_settings(Path(self.chat.options.cwd), words[0] if words else "")
        rows.append("/config KEY VALUE sets one; `crushpy config list --all` explains all settings.")
        self.say("\n".join(rows))

    async def permissions(self, argument: str) -> None:
        """The active rules, and what was granted in this conversation."""
        conversation = self.conversation
        rules = conversation.settings.permissions
        rows = [f"mode: {conversation.mode} (Shift+Tab)"]
        for kind, given in (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow)):
            rows += [f"{kind:<6} {one_line(rule)}" for rule in given]
        rows += [f"here   {one_line(rule)}" for rule in conversation.info.grants]
        if len(rows) == 1:
            rows.append("There are no rules: crushpy asks about everything that is not known to be harmless.")
        rows.append("`crushpy permissions revoke RULE` removes a rule; `crushpy permissions test` tries it.")
        if conversation.info.grants:
            rows.append(f"Granted here: `crushpy permissions revoke RULE --session {conversation.info.id}`.")
        self.say("\n".join(rows))

    async def jobs(self, argument: str) -> None:
        """The running background jobs, with the last lines of their output."""
        rows: list[str] = []
        for job in self.conversation.running_jobs:
            rows.append(f"{job.id}  {job.seconds:.0f} s  {one_line(job.command)}")
            rows += [f"    {line}" for line in clean(job.last_lines).splitlines()[-5:]]
        self.say("\n".join(rows) or "No job is running.")

    async def diff(self, argument: str) -> None:
        """What this conversation changed in files."""
        text = await self._changes()
        if text:
            self.chat.transcript.add(ReplyItem(f"```diff\n{text}\n```"))
        else:
            self.say("This conversation has not changed any file.")

    async def review(self, argument: str) -> None:
        """Asks the agent to review what this conversation changed."""
        text = await self._changes()
        if not text:
            raise RefusedCommand("There is nothing to review: this conversation has not changed any file.")
        focus = f" Look above all at: {argument.strip()}." if argument.strip() else ""
        request = (
            "Review this change as a careful colleague would: mistakes first, with file and line, then what "
            f"is unclear or missing (tests, documentation). Change nothing.{focus}\n\n```diff\n{text}\n```"
        )
        self.conversation.submit(request, pasted=(request,))

    async def init(self, argument: str) -> None:
        """Asks the agent to write AGENTS.md from the project's files, and to show it first."""
        self.require_idle()
        there = (Path(self.chat.options.cwd) / "AGENTS.md").exists()
        request = (
            f"{'Improve the AGENTS.md of' if there else 'Write an AGENTS.md for'} this project: what an "
            "engineer who has never seen it must know to work on it well. Look at the files first: how to "
            "build, test and lint (also a single test), how the code is laid out, what its conventions are. "
            "Only what you have seen, at most 60 lines, no general advice. Show me its whole text in "
            "your reply, then write it to AGENTS.md."
        )
        # The question about the file is what shows it first.
        self.conversation.submit(request, mode="ask", pasted=(request,))

    async def _changes(self) -> str:
        """The changes of the conversation as one diff; secrets are redacted."""
        conversation = self.conversation
        if not conversation.history:
            return ""
        _, found = await conversation.files.rewinder.changes(conversation.info.id)
        parts = [view.unified.strip("\n") or one_line(view.line) for _, view in found]
        text = clean(redact("\n".join(parts))).replace("```", "'''")
        if len(text) <= MAX_DIFF_CHARS:
            return text
        return f"{text[:MAX_DIFF_CHARS]}\n... {counted(len(text) - MAX_DIFF_CHARS, 'more character')}"


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
