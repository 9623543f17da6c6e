"""Commands about the app and its state: help, status, settings, rules, jobs, changes."""

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from crushpy.context.facts import touched
from crushpy.core.messages import counted
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.tools.errors import ToolError
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ReplyItem
from crushpy.tui.screens.chat_host import MIN_COLUMNS_FOR_SIDE
from crushpy.tui.screens.choose import Choice
from crushpy.tui.screens.overlay import PanelScreen, in_worker
from crushpy.tui.textual_adapter import app_of, write_to_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crushpy.tools.shell.jobs import RunningJob
    from crushpy.tui.transcript.render.canvas import Canvas

MAX_DIFF_CHARS = 60_000
"""Characters of a diff that are shown or sent; the rest is only counted."""
MAX_LAST_CHARS = 300
"""Characters of a job's output that are shown before it is watched or stopped."""
WATCH_PAUSE_S = 0.5
"""Time between two readings of a job's output."""


class WatchScreen(PanelScreen):
    """The end of a job's output as it comes. `read` returns the running jobs."""

    def __init__(self, job: "RunningJob", read: "Callable[[], Sequence[RunningJob]]") -> None:
        super().__init__(f"{job.id} {one_line(job.command)}", job.last_lines or "(no output yet)")
        self._job, self._read = job, read

    @in_worker("follow")
    async def on_mount(self) -> None:
        while jobs := [job for job in self._read() if job.id == self._job.id]:
            self.query_one("VerticalScroll Static", Static).update(Content(clean(jobs[0].last_lines)))
            self.query_one(VerticalScroll).scroll_end(animate=False)
            await asyncio.sleep(WATCH_PAUSE_S)
        self.set_heading(self.heading, "ended")


class OverviewCommands(CommandGroup):
    async def help(self, argument: str) -> None:
        from crushpy.tui.screens.help import HelpScreen

        await self.show(HelpScreen(self.chat.command_keys))

    async def glossary(self, argument: str) -> None:
        from crushpy.tui.screens.help import GlossaryScreen

        await self.show(GlossaryScreen())

    async def copy_reply(self, argument: str) -> None:
        history = self.chat.conversation.history if self.chat.conversation else ()
        replies = [
            message.text for message in history if message.role == "assistant" and message.says_something
        ]
        if not replies:
            raise RefusedCommand("There is no reply to copy yet.")
        await self.chat.copy(replies[-1])

    async def fold_all(self, argument: str) -> None:
        self.chat.folded = not self.chat.folded
        self.chat.transcript.fold_all(self.chat.folded)

    async def redraw(self, argument: str) -> None:
        from crushpy.tui.terminal.terminal_features import WIPE

        app = app_of(self.chat)
        write_to_terminal(app, WIPE)
        app.screen.refresh()

    async def hooks(self, argument: str) -> None:
        self.chat.transcript.add(ReplyItem(self.conversation.approvals.hooks.describe()))

    async def lsp(self, argument: str) -> None:
        """Lists the servers; a chosen one shows its log, or is restarted."""
        lsp = self.conversation.workspace.lsp
        servers = lsp.servers if lsp else ()
        if not servers:
            hint = "They need a trusted project, and a server on the PATH: see `crushpy doctor`."
            raise RefusedCommand("No language server is used here.", hint)
        rows = [Choice(f"log {n}", server.name, server.state) for n, server in enumerate(servers)]
        rows += [Choice(f"restart {n}", f"Restart {server.name}") for n, server in enumerate(servers)]
        chosen = await self.choose("Language servers", rows, "Enter shows the log of a server")
        if chosen is None:
            return
        what, _, number = chosen.partition(" ")
        one = servers[int(number)]
        if what == "restart":
            self.say(f"{one.name} is starting.")
            try:
                await one.restart()
            except (ToolError, ConnectionError) as error:
                raise RefusedCommand(str(error)) from None
        log = redact(clean(one.log.last.strip()))
        await self.show_panel(f"{one.name}: {one.state}", log or "The log is empty.")

    async def quit(self, argument: str) -> None:
        """Asks if something would end; the same command again is an answer."""
        runs = self.chat.running_work()
        if runs and not self.chat.asks_to_quit:
            self.chat.asks_to_quit = True
            choices = [Choice("stay", "Stay"), Choice("quit", "Quit", "what runs is stopped")]
            chosen = await self.choose("Quit crushpy?", choices, "\n".join(runs))
            self.chat.asks_to_quit = False
            if chosen != "quit":
                return
        await self.chat.leave()

    async def todos(self, argument: str) -> None:
        if not self.chat.todos.toggle():
            self.say("There are no open todos.")

    async def side(self, argument: str) -> None:
        self.chat.shows_side = not self.chat.shows_side
        if not self.chat.fit_side() and self.chat.shows_side:
            self.say(f"The side panel is shown from {MIN_COLUMNS_FOR_SIDE} columns on.")

    async def status(self, argument: str) -> None:
        from crushpy import __version__

        conversation, info = self.conversation, self.conversation.info
        await conversation.context.count_exactly()
        sandbox, rules = conversation.approvals.guard.sandbox, conversation.settings.permissions
        if not sandbox:
            why = conversation.approvals.guard.why_not
            sandbox = f"none: commands run with your privileges{f' ({why})' if why else ''}"
        allowed = conversation.approvals.allow_rules
        counts = {"deny": len(rules.deny), "ask": len(rules.ask), "allow": len(allowed)}
        counts |= {"granted here": len(info.grants)}
        read = [memory.path for memory in await conversation.context.memory()]
        viewed = {path.path for path in touched(conversation.history) if path.action == "read"}
        read += [f"{counted(len(viewed), 'file')} by the agent"] if viewed else []
        cost, priced = conversation.usage.cost, conversation.context.prices_known
        rows = {
            "model": f"{info.model}, thinking effort {conversation.settings.effort or 'default'}",
            "window": f"{conversation.context.budget().words}, compaction {info.compaction}",
            "sandbox": sandbox,
            "mode": conversation.approvals.mode,
            "rules": ", ".join(f"{number} {kind}" for kind, number in counts.items()),
            "files read": ", ".join(read) or "none yet, and there is no AGENTS.md",
            "cost": f"${cost:.4f}" if cost or priced else "unknown: no prices of this model are known",
            "folder": self.chat.options.cwd,
            "session": f"{info.id}, session {info.generation + 1} of its conversation",
            "jobs": ", ".join(job.id for job in conversation.workspace.jobs.running()) or "none",
            "version": __version__,
        }
        lines = [f"{name:<12}{one_line(value)}" for name, value in rows.items()]
        await self.show_panel("Status", "\n".join(lines))

    async def warnings(self, argument: str) -> None:
        await self.show_panel("Warnings", "\n\n".join(self.chat.warnings) or "There are none.")

    async def config(self, argument: str) -> None:
        """Shows the settings that were changed and where; with a key and a value, sets one."""
        words = argument.split(None, 1)
        if len(words) == 2:
            from crushpy.core.paths import Paths
            from crushpy.settings.save import set_value

            key, value = words
            if key.startswith("permissions."):
                raise RefusedCommand(f"Rules cannot be set here. Run crushpy config set {key} ...")
            self.say(f"{key} is set in {set_value(Paths(), key, value)}; it applies from the next start.")
            return
        rows = _changed_settings(Path(self.chat.options.cwd), words[0] if words else "")
        rows.append("/config KEY VALUE sets one; `crushpy config list --all` explains all settings.")
        self.say("\n".join(rows))

    async def permissions(self, argument: str) -> None:
        conversation = self.conversation
        rules = conversation.settings.permissions
        rows = [f"mode: {conversation.approvals.mode} (Shift+Tab)"]
        kinds = ("deny", rules.deny), ("ask", rules.ask), ("allow", conversation.approvals.allow_rules)
        for kind, given in kinds:
            rows += [f"{kind:<6} {one_line(rule)}" for rule in given]
        rows += [f"here   {one_line(rule)}" for rule in conversation.info.grants]
        if len(rows) == 1:
            rows.append("There are no rules: crushpy asks about everything that is not known to be harmless.")
        rows.append("`crushpy permissions revoke RULE` removes a rule; `crushpy permissions test` tries it.")
        if conversation.info.grants:
            rows.append(f"Granted here: `crushpy permissions revoke RULE --session {conversation.info.id}`.")
        await self.show_panel("Permissions", "\n".join(rows))

    async def add_dir(self, argument: str) -> None:
        conversation = self.conversation
        if argument.strip():
            folder = await conversation.files.add_folder(argument.strip())
            self.say(f"{folder} is part of the workspace now: the same rules, sandbox and undo.")
        else:
            listed = "\n".join(map(str, conversation.approvals.folders))
            self.say(listed or "No folder was added. /add-dir DIR adds one.")

    async def jobs(self, argument: str) -> None:
        """Lists the running background jobs; a chosen one can be watched or stopped."""
        conversation = self.conversation
        while jobs := {job.id: job for job in conversation.workspace.jobs.running()}:
            rows = [Choice(key, f"{key} {job.command}", f"{job.seconds:,.0f} s") for key, job in jobs.items()]
            job = jobs.get(await self.choose("Jobs", rows, "Enter offers to watch or stop one") or "")
            if job is None:
                return
            choices = [Choice("watch", "Watch its output"), Choice("stop", "Stop it", "and what it started")]
            match await self.choose(f"{job.id} {job.command}", choices, job.last_lines[-MAX_LAST_CHARS:]):
                case "watch":
                    await self.show(WatchScreen(job, conversation.workspace.jobs.running))
                case "stop":
                    await conversation.workspace.jobs.get(job.id).kill()
                case _:
                    pass
        self.say("No job is running.")

    async def diff(self, argument: str) -> None:
        from crushpy.tui.transcript.drawn_display import DrawnDisplay
        from crushpy.tui.transcript.render.draw_item import draw_item

        text = await self._changes()
        item = ReplyItem(f"```diff\n{text}\n```" if text else "This conversation has not changed any file.")

        def draw(canvas: "Canvas") -> None:
            deque(draw_item(item, canvas, opened=True), 0)

        await self.show_panel("Changes", DrawnDisplay(draw, self.chat.transcript.current_palette))

    async def review(self, argument: str) -> None:
        text = await self._changes()
        if not text:
            raise RefusedCommand("There is nothing to review: this conversation has not changed any file.")
        focus = f" Look above all at: {argument.strip()}." if argument.strip() else ""
        request = (
            "Review this change as a careful colleague would: mistakes first, with file and line, then what "
            f"is unclear or missing (tests, documentation). Change nothing.{focus}\n\n```diff\n{text}\n```"
        )
        self.conversation.submit(request, pasted=(request,), typed=f"/review {argument}".strip())

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
        self.conversation.submit(request, mode="ask", pasted=(request,), typed="/init")

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
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.settings.setting_keys import parse_key

    loaded = ProjectEnvironment(cwd).loaded
    rows: list[str] = []
    for name, origin in loaded.origins.items():
        if name.startswith(key) if key else origin != "default":
            value = msgspec.to_builtins(loaded.shown_value(parse_key(name)))
            rows.append(f"{name} = {value!r}  ({origin})")
    return rows or [f"No setting begins with {key}." if key else "No setting was changed."]
