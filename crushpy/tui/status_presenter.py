"""Updates status bar, context strip and mode chip from events and from the state of the conversation."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.forecast import turns_left_hint
from crushpy.core import events
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Diff
from crushpy.security.sanitize import one_line
from crushpy.tui.widgets.context_strip import ContextStrip
from crushpy.tui.widgets.status_bar import ModeChip, Reading, StatusBar

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.tui.widgets.side_panel import SidePanel

COMMAND_TIMEOUT_S = 0.3
"""Of the user's own command."""
READING_PAUSE_S = 0.1
"""Between two readings of the gauge while calls end."""
_UNSEEN = (events.TextDelta, events.ThinkingDelta, events.ToolOutput, events.Progress, events.TaskProgress)
"""There are thousands of them, and none of them changes what is shown."""


class StatusPresenter:
    """Sets the widgets' state when something changed: nothing is drawn while the agent is idle."""

    def __init__(
        self, bar: StatusBar, strip: ContextStrip, chip: ModeChip, own: "Callable[[], OwnCommands]"
    ) -> None:
        self._own = own
        self._bar, self._strip, self._chip = bar, strip, chip
        self._conversation: Conversation | None = None
        self._reading_due = False
        self.side: SidePanel | None = None
        """Beside the transcript of a wide terminal."""
        self._changed_files: tuple[tuple[str, int, int], ...] = ()
        self._told = b""
        """What the user's command was told last: it runs again once something else is to be told."""

    def follow(self, conversation: "Conversation", *, yolo: bool) -> None:
        self._conversation = conversation
        self._changed_files = ()
        self.count_changes()
        self._chip.yolo = yolo
        self._locate(conversation)
        self.refresh()
        self._count_rules()

    def _count_rules(self) -> None:
        conversation = self._conversation

        async def count() -> None:
            with suppress(CrushpyError):  # the next turn reports it
                rules = await conversation.rules.count() if conversation is not None else 0
                if self._conversation is conversation:
                    self.set(rules=rules)

        if self._bar.is_running:
            self._bar.run_worker(count, group="rules", exclusive=True)

    def count_changes(self) -> None:
        """Reads what the conversation changed, if that is shown."""
        conversation = self._conversation

        async def count() -> None:
            if conversation is None or not conversation.history:
                return
            with suppress(CrushpyError):
                _, found = await conversation.files.rewinder.changes(conversation.info.id)
                self._changed_files = tuple((view.path, view.added, view.removed) for _, view in found)
                self._show_side()

        if self.side is not None and self._bar.is_running:
            self._bar.run_worker(count, group="changes", exclusive=True)

    def _show_side(self) -> None:
        if self.side is None or self._conversation is None:
            return
        from crushpy.tui.widgets.side_panel import SideState

        state = self._bar.state
        jobs = [one_line(job.command) for job in self._conversation.workspace.jobs.running()]
        todos, budget = self._conversation.info.todos, f"{state.budget} left" if state.budget else ""
        self.side.state = SideState(
            todos, self._changed_files, tuple(jobs), state.reading, state.rules, budget
        )

    def refresh(self) -> None:
        """Reads model, method, context and cost from the conversation."""
        conversation = self._conversation
        if conversation is None:
            return
        info = conversation.info
        if not conversation.busy:
            self.set(asks=False)
        self._chip.mode = conversation.approvals.mode
        self.set(
            model=info.model,
            method=info.compaction,
            generation=info.generation,
            depth=len(conversation.session.branches),
            cost=conversation.usage.cost,
            budget=conversation.spending.left,
            jobs=len(conversation.workspace.jobs.running()),
            reading=_reading(conversation),
            forecast=turns_left_hint(conversation.context.forecast(costs=False)),
        )
        self._show_side()
        if conversation.settings.status_line.command:
            self._run_command(conversation)

    def _run_command(self, conversation: "Conversation") -> None:
        """Runs the user's command for the status bar, unless it would be told what it was told last."""
        info, reading = conversation.info, self._bar.state.reading
        context, cost = {"used": reading.used, "window": reading.window}, conversation.usage.cost
        mode = conversation.approvals.mode
        state = {"session_id": info.id, "cwd": info.cwd, "model": info.model, "mode": mode}
        told = msgspec.json.encode({**state, "context": context, "cost": cost})
        if told != self._told and self._bar.is_running:
            self._told = told
            command = conversation.settings.status_line.command
            show_line = partial(self._show_line, command, info.cwd, told)
            self._bar.run_worker(show_line, group="line", exclusive=True)

    async def _show_line(self, command: str, cwd: str, told: bytes) -> None:
        """The last line stays if the command fails or takes too long; without one, the bar says that."""
        line, failure = await self._own().first_line(command, Path(cwd), told, COMMAND_TIMEOUT_S)
        if not failure:
            self.set(line=line)
        elif not self._bar.state.line:
            self.set(line=f"status_line.command: {failure}")

    def _locate(self, conversation: "Conversation") -> None:
        from crushpy.engine.environment import git_branch

        cwd = Path(conversation.info.cwd)
        self.set(folder=home_relative(cwd), branch=git_branch(cwd))

        async def check_sandbox() -> None:
            # This may start a process.
            why_not = await asyncio.to_thread(lambda: conversation.approvals.guard.why_not)
            if self._conversation is conversation:
                self.set(unconfined=bool(why_not))

        self._bar.run_worker(check_sandbox)

    def hear(self, event: events.Event) -> None:
        if isinstance(event, _UNSEEN):
            return
        match event:
            case events.ApprovalNeeded():
                self.set(asks=True)
            case events.ApprovalDone():
                self.set(asks=False)
            case events.RuleChanged():
                self._count_rules()
            case events.ToolFinished(display=Diff()):
                self.count_changes()
            case events.TurnEnded():
                self.set(asks=False)
                self._count_rules()
                self.count_changes()
                # A command may have changed the branch; a turn may end after the app.
                if self._conversation is not None and self._bar.is_running:
                    self._locate(self._conversation)
            case _:
                pass
        if not isinstance(event, events.ToolCalled | events.ToolStarted | events.ToolFinished):
            self.refresh()
        elif not self._reading_due:
            self._reading_due = True  # later: a reply may have thousands of calls
            self._bar.set_timer(READING_PAUSE_S, self._show_reading)

    def _show_reading(self) -> None:
        self._reading_due = False
        if self._conversation is not None:
            self.set(reading=_reading(self._conversation))

    def set(self, **changes: object) -> None:
        self._bar.state = msgspec.structs.replace(self._bar.state, **changes)
        self._strip.reading = self._bar.state.reading


def _reading(conversation: "Conversation") -> Reading:
    context = conversation.context
    budget, parts = context.parts()
    known = budget.used, budget.window, budget.estimated, budget.window_known
    return Reading(*known, context.preparation, parts, context.thresholds)


def home_relative(path: Path) -> str:
    """A path as people write it, with `~` for the home folder."""
    home = Path.home()
    if path == home:
        return "~"
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
