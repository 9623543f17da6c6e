"""What the parts of one agent share: the services of its conversation, and the session it works in."""

import msgspec

from crushpy.context.overrides import by_message
from crushpy.core.events import Emit
from crushpy.core.messages import Origin
from crushpy.core.templates import Templates
from crushpy.engine.approvals import Approvals
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.hooks import ResultAddition
from crushpy.engine.models import Models
from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.engine.session.session import LiveSession, LoadedSession
from crushpy.engine.user_settings import UserSettings
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store
from crushpy.tools.base import Workspace


class Services(msgspec.Struct, frozen=True):
    """What all agents of a conversation share."""

    store: Store
    user_settings: UserSettings
    templates: Templates
    approvals: Approvals
    workspace: Workspace
    """Where tools work."""
    audit: AuditTrail
    """Records the decision about every tool call of every agent."""
    recorder: ChangeRecorder | None = None
    """Notified of every tool call of every agent; None in a worktree, whose changes become a branch."""
    additions: tuple[ResultAddition, ...] = ()
    """What results gain beside the rules files of their folders."""
    interactive: bool = False
    trusted: bool = False
    origin: Origin = "typed"
    """Of the prompts."""
    shown_warnings: set[str] = msgspec.field(default_factory=set[str])
    """Warnings that the user sees once in a conversation."""

    @property
    def settings(self) -> Settings:
        """The settings in force: they may change between two requests."""
        return self.user_settings.current

    @property
    def has_user(self) -> bool:
        """Whether a user, in the app or in an editor, can be asked to go on at a limit."""
        return self.interactive or self.origin == "editor"

    def prepare_calls(self) -> None:
        """Loads what tool calls need in the background, while a reply is awaited."""
        self.workspace.jobs.warm_up()
        self.approvals.warm_up()
        if self.recorder is not None:
            self.recorder.warm_up()


class AgentScope(msgspec.Struct, frozen=True):
    """One agent's session, models and event sink, beside the shared services."""

    services: Services
    session: LiveSession
    """The session at the tip: a boundary switches it to the child."""
    models: Models
    gauge: Gauge
    emit: Emit
    task: str = ""
    """Id of the `task` call that a sub-agent works for; empty for the main agent."""

    @property
    def settings(self) -> Settings:
        return self.services.settings

    @property
    def interactive(self) -> bool:
        """Whether the user waits for this agent, not for one above it."""
        return self.services.interactive and not self.task


def new_gauge(models: Models, loaded: LoadedSession) -> Gauge:
    """A gauge that starts with the usage reports stored in a session."""
    gauge = Gauge(models.window, models.ratios, models.count_image, loaded.info.model)
    overrides = by_message(loaded.overrides)
    gauge.restore(loaded.history, overrides, loaded.inherited, loaded.info.model)
    return gauge
