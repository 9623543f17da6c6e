"""The one place that wires the rooms together."""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from crushpy.engine.conversation import Conversation
from crushpy.engine.environment import context_files, describe
from crushpy.engine.limits import Limits
from crushpy.engine.live import load_repaired
from crushpy.engine.models import Models
from crushpy.errors import UsageError
from crushpy.ids import new_id
from crushpy.llm.protocol import ToolSpec
from crushpy.llm.select import default_model
from crushpy.messages import Data, Message, Usage
from crushpy.paths import Paths, private_dir, project_dir, project_root
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.trust import is_trusted
from crushpy.prompts import Templates
from crushpy.settings import Loaded, Settings, add_rule, load
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, ToolContext
from crushpy.tools.filememory import FileMemory
from crushpy.tools.jobs import Jobs
from crushpy.tools.registry import all_tools, schema


class Wanted(Data, frozen=True):
    """Which conversation to open, and how."""

    cwd: str
    session: str = ""
    """Resume this session: an id or the unique beginning of one."""
    resume_latest: bool = False
    """Resume the latest conversation of this folder, where there is one."""
    model: str = ""
    """Go on with this model instead of the one a resumed session used."""
    compaction: str = ""
    allow: tuple[str, ...] = ()
    """Rules for this process only."""
    yolo: bool = False
    interactive: bool = False
    limits: Limits = Limits()


class Surroundings:
    """What holds for a folder: its paths, its settings, its templates."""

    def __init__(self, cwd: Path, flags: Mapping[str, object] | None = None) -> None:
        self.paths = Paths()
        self.cwd = cwd
        self.root = project_root(cwd)
        self.trusted = is_trusted(self.paths, self.root)
        self.loaded: Loaded = load(self.paths, cwd, trusted=self.trusted, flags=flags or {})
        project = project_dir(cwd) / "templates" if self.trusted else None
        self.templates = Templates(self.paths.templates, project)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def store(self) -> Store:
        return Store(self.paths.database, self.settings.database_url)

    def system_prompt(self, now: float) -> str:
        """The system prompt of a session that opens now."""
        files = context_files(self.cwd, self.paths.config_dir)
        return f"{self.templates.render('system')}\n\n{describe(self.cwd, now, files)}"

    def tool_specs(self, tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(tool.name, self.templates.render(f"tools/{tool.name}"), schema(tool.args))
            for tool in tools
        )


async def open_conversation(around: Surroundings, wanted: Wanted) -> Conversation:
    """A new conversation, or a stored one to go on with. A new one touches no database yet."""
    settings = around.settings
    chosen = settings.permissions
    rules = RuleSet.from_strings(allow=(*chosen.allow, *wanted.allow), ask=chosen.ask, deny=chosen.deny)
    store = around.store()
    tools = all_tools()
    specs = around.tool_specs(tools)
    info, history = await _session(around, wanted, store)
    context = ToolContext(
        around.cwd,
        around.paths.outputs / info.id,
        FileMemory(),
        Jobs(),
        allow_private_hosts=settings.permissions.private_hosts,
    )
    return Conversation(
        store,
        info,
        history or (),
        stored=history is not None,
        models=Models(settings, lambda: specs),
        tools=tools,
        context=context,
        rules=rules,
        remember=lambda rule: _remember(around.paths, rule),
        limits=wanted.limits,
        interactive=wanted.interactive,
        yolo=wanted.yolo,
    )


async def _session(
    around: Surroundings, wanted: Wanted, store: Store
) -> tuple[SessionInfo, list[Message] | None]:
    """The session to work in; its history, or None for one that is new."""
    settings = around.settings
    stored: SessionInfo | None = None
    if wanted.session:
        stored = await store.session(wanted.session)
    elif wanted.resume_latest:
        stored = await store.latest(str(around.cwd))
        if stored is None:
            raise UsageError(
                f"There is no conversation to continue in {around.cwd}.",
                "Leave --continue out to start one, or see `crushpy sessions list --all`.",
            )
    if stored is not None:
        changes = {
            "model": wanted.model or stored.model,
            "compaction": wanted.compaction or stored.compaction,
        }
        return msgspec.structs.replace(stored, **changes), await load_repaired(store, stored)
    now = time.time()
    session_id = new_id()
    info = SessionInfo(
        id=session_id,
        root_id=session_id,
        parent_id=None,
        kind="root",
        generation=0,
        title="",
        cwd=str(around.cwd),
        model=default_model(settings),
        compaction=settings.compaction.method,
        system=around.system_prompt(now),
        created_at=now,
        updated_at=now,
        ended_at=None,
        end_reason="",
        message_count=0,
        usage=Usage(),
        todos=(),
        grants=(),
    )
    return info, None


def _remember(paths: Paths, rule: str) -> None:
    private_dir(paths.data_dir)
    add_rule(paths, "allow", rule)
