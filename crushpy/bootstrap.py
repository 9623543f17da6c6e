"""The one place that wires the rooms together."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.core.access import Mode, Privileges
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Image
from crushpy.core.paths import Paths, private_dir, project_dir, project_root
from crushpy.core.start_options import StartOptions
from crushpy.core.templates import Templates
from crushpy.engine.agents.listed_work import WorkingFolder
from crushpy.engine.attachments import image_limits, load_pictures
from crushpy.engine.conversation import Choices, Conversation
from crushpy.engine.environment import context_files, describe
from crushpy.engine.event_bus import EventBus
from crushpy.engine.models import Models
from crushpy.engine.rewind.undo_files import any_unfinished
from crushpy.engine.session.fork import fork_session
from crushpy.engine.session.session import LoadedSession, load_session
from crushpy.engine.turn.limits import Limits
from crushpy.engine.turn.toolset import Toolset
from crushpy.llm.errors import ModelError
from crushpy.llm.learnt import LearntModels
from crushpy.llm.provider_factory import default_model, find_endpoint
from crushpy.permissions.decision import ExecutionContext
from crushpy.permissions.rules import RuleSet, escaped
from crushpy.permissions.trust import is_trusted
from crushpy.sandbox.confinement import ResourceLimits, Unconfined, confine
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import find_sandbox
from crushpy.sandbox.repository import git_folders
from crushpy.security.private_files import write_private
from crushpy.security.sanitize import encodable
from crushpy.settings import Loaded, Settings, add_item, add_rule, load, save_choice
from crushpy.settings.files import user_files
from crushpy.storage.records import BreakerState, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import ToolContext
from crushpy.tools.files.file_memory import FileMemory
from crushpy.tools.registry import all_tools, tool_table
from crushpy.tools.shell.jobs import Jobs

TEMPLATE_EDITED = "The summary template was edited: it holds from this request on (the cache misses once)."


def start_logging(paths: Paths) -> None:
    """Warnings and bugs go to a file, never to the screen. It is made when there is something to say."""
    import logging

    class Quiet(logging.FileHandler):
        def _open(self) -> TextIOWrapper:
            private_dir(paths.logs)
            file = super()._open()
            Path(self.baseFilename).chmod(0o600)
            return file

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
            """A full disk must not break what is being logged about."""

    class Discreet(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            from crushpy.security.redact import redact

            return redact(super().format(record))

    handler = Quiet(paths.logs / "crushpy.log", encoding="utf-8", delay=True)
    handler.setFormatter(Discreet("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("crushpy")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


class ProjectEnvironment:
    """What holds for a folder: its paths, its settings, its templates."""

    def __init__(self, cwd: Path, flags: Mapping[str, object] | None = None) -> None:
        self.paths = Paths()
        user_files(self.paths)  # tells where there is no home to keep anything in
        start_logging(self.paths)
        self.cwd = cwd
        self.root = project_root(cwd)
        self.trusted = is_trusted(self.paths, self.root)
        self.loaded: Loaded = load(self.paths, cwd, trusted=self.trusted, flags=flags or {})
        project = project_dir(cwd) / "templates" if self.trusted else None
        self.templates = Templates(self.paths.templates, project)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def guard(self) -> ExecutionContext:
        """What holds commands back beside the rules. The first call tries the sandbox: milliseconds."""
        chosen = self.settings.sandbox
        sandbox = find_sandbox(chosen.mode)
        return ExecutionContext(
            self.trusted,
            sandbox.name if sandbox.on else "",
            chosen.auto_allow and sandbox.keeps_repository,
            write=tuple(str(Path(folder).expanduser()) for folder in chosen.write),
            why_not=sandbox.why_not if chosen.mode == "on" and not sandbox.on else "",
        )

    def granted_hosts(self) -> tuple[str, ...]:
        """The hosts of the settings, as rules: so that what is no host is told."""
        return tuple(
            "network" if host == "*" else f"network({host})" for host in self.settings.sandbox.network
        )

    def store(self) -> Store:
        store = Store(self.paths.database, self.settings.database_url)
        store.outputs.folder = self.paths.outputs
        return store

    def confine(self, cwd: Path, private: Path, outputs: Path, shown: tuple[str, ...] = ()) -> Unconfined:
        """What holds the commands of one conversation in `cwd`, whose own folders the others are.

        `shown`: what they see wherever it lies.
        """
        own = (self.paths.config_dir, self.paths.data_dir)
        private_hosts = self.settings.permissions.private_hosts
        chosen = self.settings.sandbox
        agent = os.environ.get("SSH_AUTH_SOCK", "") if "SSH_AUTH_SOCK" in chosen.env else ""
        grounds = SandboxConfig(
            cwd,
            Path.home(),
            own,
            outputs,
            self.paths.put_aside,
            sockets=(agent,) if agent and Path(agent).is_socket() else (),
            private_hosts=private_hosts,
            shown=shown,
        )
        limits = ResourceLimits(chosen.processes, chosen.memory_mb, chosen.file_mb)
        return confine(chosen.mode, grounds, private, limits)

    def system_prompt(self, now: float, cwd: Path | None = None) -> str:
        """The system prompt of a session that opens now, perhaps to work elsewhere."""
        cwd = cwd or self.cwd
        files = context_files(cwd, self.paths.config_dir)
        # A folder's name may be no Unicode, and a request holds nothing else.
        return encodable(f"{self.templates.render('system')}\n\n{describe(cwd, now, files)}")

    def toolset(self, templates: Templates, on_edit: Callable[[], None]) -> Toolset:
        return Toolset(all_tools(), templates, on_edit=on_edit)


async def open_conversation(around: ProjectEnvironment, options: StartOptions) -> Conversation:
    """A new conversation, or a stored one to go on with. A new one touches no database yet."""
    settings = around.settings
    chosen = settings.permissions
    store = around.store()
    stored = await _stored(around, options, store)
    loaded = stored or LoadedSession(_new_session(around, options))
    outputs = around.paths.outputs / loaded.info.root_id
    private = around.paths.sandboxes / new_id()
    readable = [f"view({escaped(str(outputs))}/**)"]
    # Those of its tasks that work elsewhere begin with the same name.
    readable += [f"{tool}({escaped(str(private))}*/**)" for tool in ("view", "ls", "glob", "grep")]
    rules = RuleSet.from_strings(
        allow=(*chosen.allow, *options.allow, *readable, *around.granted_hosts()),
        ask=chosen.ask,
        deny=chosen.deny,
        tools=tool_table(),
    )

    def context_in(cwd: Path, private: Path, shown: tuple[str, ...] = ()) -> ToolContext:
        return ToolContext(
            cwd,
            outputs,
            FileMemory(),
            Jobs(settings.sandbox.env, lambda: around.confine(cwd, private, outputs, shown)),
            allow_private_hosts=chosen.private_hosts,
            bring_output=lambda name: _bring_output(store, outputs, name),
        )

    def elsewhere(cwd: Path) -> WorkingFolder:
        own = private.with_name(f"{private.name}-{new_id()}")
        repository = git_folders(cwd)  # nobody has been there yet: it is as git made it
        shown = repository.folders if repository else ()
        return WorkingFolder(context_in(cwd, own, shown), around.system_prompt(time.time(), cwd))

    events = EventBus(opened=stored is not None)
    store.listen(lambda words: events.at_once(Notice(words, "warning")))
    templates = around.templates.reporting_to(
        lambda problem: events(
            Notice(f"{problem.message}. Another one is used meanwhile. {problem.hint}", "warning")
        )
    )
    limits = Limits(options.max_steps, options.max_tokens, options.max_cost)
    conversation = Conversation(
        store,
        loaded,
        events,
        stored=stored is not None,
        settings=settings,
        templates=templates,
        toolset=around.toolset(templates, on_edit=lambda: events(Notice(TEMPLATE_EDITED))),
        context=context_in(around.cwd, private),
        choices=Choices(
            rules,
            limits,
            options.interactive,
            options.yolo,
            loaded.info.mode or chosen.mode,
            around.guard,
        ),
        remember=lambda rule: _remember(around.paths, rule),
        remember_needs=lambda needs: _remember_needs(around.paths, needs),
        save=lambda key, value: _save(around.paths, key, value),
        learnt=LearntModels(around.paths.learnt_file),
        undo_dir=around.paths.undo,
        elsewhere=elsewhere,
        worktrees=around.paths.worktrees,
    )
    if not options.read_only and any_unfinished(around.paths.undo):
        await conversation.files.recover()
    if not options.read_only and around.paths.worktrees.is_dir():
        from crushpy.engine.agents.worktrees import take_up_left

        for words in await asyncio.to_thread(lambda: list(take_up_left(around.paths.worktrees))):
            events(Notice(words, "warning"))
    return conversation


async def _bring_output(store: Store, outputs: Path, name: str) -> None:
    """An output that another machine made, as a file of this one."""
    data = await store.outputs.load(outputs.name, name)
    if data is not None:
        private_dir(outputs)
        write_private(outputs / name, data)


async def load_images(around: ProjectEnvironment, options: StartOptions) -> tuple[Image, ...]:
    """The pictures of `--image`, for the model that is asked for. Raises UsageError; writes nothing."""
    if not options.image:
        return ()
    model = options.model
    if not model and (options.session or options.resume_latest):
        store = around.store()
        try:
            info = await _wanted(around, options, store)
            model = info.model if info else ""
        finally:
            await store.close()
    models = Models(around.settings, lambda _: (), LearntModels(around.paths.learnt_file))
    limits = image_limits(models, model or default_model(around.settings))
    return await load_pictures(options.image, around.cwd, limits)


async def branch_to_open(around: ProjectEnvironment, options: StartOptions) -> StartOptions:
    """Makes the branch that `at` asks for, before there is a front end; the options that open it."""
    store = around.store()
    try:
        info = await _wanted(around, options, store)
        branch = await fork_session(store, info, options.at) if info else None
    finally:
        await store.close()
    found = branch.info.id if branch else options.session
    return msgspec.structs.replace(options, session=found, resume_latest=False, fork=False, at="")


async def _stored(around: ProjectEnvironment, options: StartOptions, store: Store) -> LoadedSession | None:
    """The stored session that is asked for, at the tip of its conversation, or a branch of it."""
    info = await _wanted(around, options, store)
    if info is None:
        return None
    if options.fork or options.at:
        branch = await fork_session(store, info, options.at)
        await store.leases.acquire(branch.info.id)
        return branch
    if not options.read_only:
        await store.leases.acquire(info.id)
        if options.model or options.compaction or options.mode or info.imported:
            await store.sessions.update(
                info.id,
                model=info.model,
                compaction=info.compaction,
                system=info.system or None,
                breaker=info.breaker,
                mode=info.mode or None,
            )
    return await load_session(store, info, read_only=options.read_only)


async def _wanted(around: ProjectEnvironment, options: StartOptions, store: Store) -> SessionInfo | None:
    """The session to go on with or to branch from, with what the flags say of it; None for a new one."""
    if options.session:
        info = await store.sessions.find_tip(options.session)
    elif options.resume_latest:
        info = await store.sessions.find_latest(str(around.cwd))
        if info is None:
            raise UsageError(
                f"There is no conversation to continue in {around.cwd}.",
                "Leave --continue out to start one, or see `crushpy sessions list --all`.",
            )
    elif options.at:
        raise UsageError(
            f"--at {options.at} does not say of which session.",
            "Add -s ID, or -c for the latest conversation of this folder.",
        )
    else:
        return None
    if info.imported and not info.system:  # not gone on with here yet
        info = _adopted(around, info)
    changes: dict[str, Any] = {
        "compaction": options.compaction or info.compaction,
        "mode": options.mode or info.mode,
    }
    if options.model and options.model != info.model:
        changes |= {"model": options.model, "breaker": BreakerState()}  # another window may have room
    return msgspec.structs.replace(info, **changes)


def _adopted(around: ProjectEnvironment, info: SessionInfo) -> SessionInfo:
    """An imported session with a system prompt of ours, and with the model the user works with: the one it
    was made with only where nothing else was chosen and there is a key for it."""
    model = default_model(around.settings)
    if info.model and not around.settings.model:
        with suppress(ModelError):
            find_endpoint(info.model, around.settings, os.environ)
            model = info.model
    return msgspec.structs.replace(
        info,
        model=model,
        compaction=around.settings.compaction.method,
        system=around.system_prompt(time.time()),
    )


def _new_session(around: ProjectEnvironment, options: StartOptions) -> SessionInfo:
    now = time.time()
    session_id = new_id()
    return SessionInfo(
        id=session_id,
        root_id=session_id,
        parent_id=None,
        kind="root",
        generation=0,
        title="",
        cwd=str(around.cwd),
        model=default_model(around.settings),
        compaction=around.settings.compaction.method,
        system=around.system_prompt(now),
        created_at=now,
        updated_at=now,
        mode=cast(Mode, options.mode),
    )


def _remember(paths: Paths, rule: str) -> None:
    private_dir(paths.data_dir)
    add_rule(paths, "allow", rule)


def _remember_needs(paths: Paths, needs: Privileges) -> None:
    private_dir(paths.data_dir)
    for host in needs.hosts:
        add_item(paths, ("sandbox", "network"), host)
    for folder in needs.write:
        add_item(paths, ("sandbox", "write"), folder)


def _save(paths: Paths, key: str, value: str) -> None:
    private_dir(paths.data_dir)
    save_choice(paths, key, value)
