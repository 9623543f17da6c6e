"""Opens conversations: finds or creates the session, and builds the services that it needs."""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.bootstrap.slash_commands import SlashCommands
from crushpy.bootstrap.user_extensions import skill_tools
from crushpy.bootstrap.workspaces import Workspaces
from crushpy.core.access import Mode, Privileges
from crushpy.core.boundary import RETURN
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Image
from crushpy.core.paths import PROJECT_HOOKS
from crushpy.core.start_options import StartOptions
from crushpy.core.templates import TemplateProblem
from crushpy.engine.agents.agent import Agent
from crushpy.engine.agents.scope import AgentScope, Services, new_gauge
from crushpy.engine.agents.subagents import Subagents, TaskWorkspace
from crushpy.engine.approvals import Approvals, PermissionOptions
from crushpy.engine.attachments import image_limits, load_pictures
from crushpy.engine.compaction.pins_and_rules import PinService, rule_phrases
from crushpy.engine.conversation import Conversation
from crushpy.engine.environment import instruction_texts
from crushpy.engine.event_bus import EventBus
from crushpy.engine.hooks import Hooks
from crushpy.engine.models import Models
from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.rewind.undo_files import UndoFiles, any_unfinished
from crushpy.engine.runtime import Runtime
from crushpy.engine.session.audit_trail import AuditTrail, RunSummary
from crushpy.engine.session.session import LiveSession, LoadedSession, load_session
from crushpy.engine.session.timeline import Timeline
from crushpy.engine.session.tree import fork_session
from crushpy.engine.step.toolset import Toolset
from crushpy.engine.turn.limits import Limits
from crushpy.engine.user_settings import UserSettings
from crushpy.llm.errors import ModelError
from crushpy.llm.learnt import LearntModels
from crushpy.llm.protocol import Provider
from crushpy.llm.provider_factory import UNNAMED, default_model, find_endpoint
from crushpy.permissions.rules import WEB_SEARCH_RULE, RuleSet, escaped
from crushpy.sandbox.confinement import Unconfined
from crushpy.security.private_files import write_private
from crushpy.security.sanitize import encodable
from crushpy.storage.records import BreakerState, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.tools.registry import all_tools, tool_table

if TYPE_CHECKING:
    from crushpy.extensions.hooks.hook_config import HookSetup

TEMPLATE_EDITED = (
    "The summary template was edited. It applies from this request on; the prompt cache misses once."
)

NOT_ACCEPTED = "the user of this worker has not accepted it"


class HostAdditions(msgspec.Struct, frozen=True):
    """What a program that embeds crushpy adds to a conversation."""

    tools: tuple[AnyTool, ...] = ()
    providers: Mapping[str, Provider] = {}
    """By the name of their model."""
    offers: Callable[[AnyTool], bool] = lambda _: True
    """Which tools the model gets."""
    files: WorkspaceFiles = WorkspaceFiles()
    """How the tools read and write files."""
    answers: bool = False
    """The program answers approvals."""
    wrap_hooks: Callable[[Hooks], Hooks] = lambda hooks: hooks
    """Gets the hooks of the settings and returns those to use."""


async def open_conversation(
    environment: ProjectEnvironment, options: StartOptions, additions: HostAdditions | None = None
) -> Conversation:
    """Opens a new or a stored conversation. A new one is stored with its first prompt."""
    store = environment.store()
    store.open_in_background()
    loaded = await _load_stored(environment, options, store)
    if loaded is None:
        model = await _choose_model(environment)
        loaded = LoadedSession(_new_session(environment, options, model), stored=False)
    if environment.copy and loaded.info.root_id != options.session:  # it becomes part of a path and a rule
        raise UsageError(f"A stored session is not the conversation of list {options.session}.")
    runtime = _build_runtime(environment, options, store, loaded, additions or HostAdditions())
    conversation = Conversation(runtime)
    if not loaded.stored and (new := _new_instructions(environment.paths.instructions_file, loaded.info)):
        runtime.events(Notice(f"New or changed instructions since the last start here: {', '.join(new)}"))
    for name in options.add_dir:
        await conversation.add_folder(name)
    if not options.read_only and any_unfinished(environment.paths.undo):
        await conversation.files.recover()
    if not options.read_only and environment.paths.worktrees.is_dir():
        from crushpy.engine.agents.task_workspaces import recover_worktrees

        for text in await asyncio.to_thread(lambda: list(recover_worktrees(environment.paths.worktrees))):
            runtime.events(Notice(text, "warning"))
    return conversation


def _new_instructions(file: Path, info: SessionInfo) -> list[str]:
    """The instruction files that are new or changed since the last start in this folder."""
    texts = encodable(instruction_texts(info.system))
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
    folders: dict[str, dict[str, str]] = {}
    with suppress(OSError, msgspec.MsgspecError):
        folders = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, str]])
    folder = encodable(info.cwd)
    before = folders.get(folder)
    if hashes != before:
        folders[folder] = hashes
        with suppress(OSError):  # then the next start says it again
            write_private(file, msgspec.json.encode(folders))
    return [path for path in hashes if before is not None and before.get(path) != hashes[path]]


def _build_runtime(
    environment: ProjectEnvironment,
    options: StartOptions,
    store: Store,
    loaded: LoadedSession,
    additions: HostAdditions,
) -> Runtime:
    settings, paths, templates = environment.settings, environment.paths, environment.templates
    with_hooks = (additions.answers or not options.read_only) and _has_hooks(environment)
    hooks = _read_hooks(environment) if with_hooks else None
    events = EventBus(opened=loaded.stored)
    store.listen(lambda text: events.emit_now(Notice(text, "warning")))

    def on_template_problem(problem: TemplateProblem) -> None:
        text = f"{problem.message}. Another template is used instead. {problem.hint}"
        events(Notice(text, "warning"))

    templates.on_problem = on_template_problem
    models = Models(settings, lambda _: (), LearntModels(paths.learnt_file), additions.providers)
    lsp_servers = environment.language_servers(options)
    workspaces = Workspaces(environment, store, loaded.info.root_id, lsp_servers, events)
    servers = workspaces.mcp
    tools = (
        *all_tools(lsp=bool(lsp_servers)),
        # A copy has the skills of this machine, and the stored prompt names those of the submitter's.
        *skill_tools(
            environment.extensions.listing(lambda: models.window(loaded.info.model))
            if environment.copy
            else loaded.info.system
        ),
        *servers.tools(models.window(loaded.info.model)),
        *additions.tools,
    )
    tools = tuple(filter(additions.offers, tools))
    toolset = Toolset(tools, templates, on_edit=lambda: events(Notice(TEMPLATE_EDITED)))
    models = models.for_tools(toolset.specs)
    gauge = new_gauge(models, loaded)
    session = LiveSession(store, loaded, events, gauge.exact_size, phrases=rule_phrases(templates))
    events.make_note = Timeline(store, session).note
    workspace, added = workspaces.make_main(additions.files)
    user_settings = UserSettings(settings, paths, environment.cwd)
    rules = _rules(environment, options, workspaces, additions.tools)
    forbidden = any(rule.tool == WEB_SEARCH_RULE for rule in (*rules.deny, *rules.ask))
    models.web_search = settings.web_search == "on" and not forbidden
    permissions = PermissionOptions(
        rules,
        options.interactive or additions.answers,
        options.yolo,
        loaded.info.mode or settings.permissions.mode,
        environment.guard,
    )
    undo_files = UndoFiles(paths.undo, workspace.cwd, settings.undo)
    change_recorder = ChangeRecorder(store, undo_files, workspace.jobs, session, events)
    audit = AuditTrail(store, loaded.info.root_id)
    run_summary = RunSummary(store, audit)
    approvals = Approvals(permissions, workspace, session, user_settings, events)
    for folder in approvals.folders:
        undo_files.add(folder)
    if hooks is not None:
        from crushpy.extensions.hooks.command_hooks import CommandHooks

        approvals.hooks = CommandHooks(hooks, session, approvals, workspace, events)
    approvals.hooks = additions.wrap_hooks(approvals.hooks)
    services = Services(
        store,
        user_settings,
        templates,
        approvals,
        workspace,
        audit,
        change_recorder,
        added,
        options.interactive,
        environment.trusted,
    )
    scope = AgentScope(services, session, models, gauge, events)
    pins = PinService(scope)
    subagents = Subagents(scope, toolset, environment.extensions.agent)

    def open_workspace(cwd: Path) -> TaskWorkspace:
        own, gained = workspaces.make_worktree(cwd)
        there = msgspec.structs.replace(services, workspace=own, additions=gained, recorder=None)
        setup = environment.worktree_setup(cwd)
        return TaskWorkspace(there, environment.system_prompt(time.time(), cwd), str(cwd), setup=setup)

    agent = Agent(scope, toolset.tools, subagents.run, pins)
    return Runtime(
        events,
        scope,
        agent,
        subagents,
        pins,
        undo_files,
        change_recorder,
        run_summary,
        Limits(options.max_steps, options.max_tokens, options.max_cost),
        paths.worktrees,
        open_workspace,
        servers,
        SlashCommands(environment.extensions, servers, agent, events),
    )


def _read_hooks(environment: ProjectEnvironment) -> "HookSetup":
    """The process that runs hooks starts here, before everything else is made: the first hook, which may come
    right after that, would have to wait for it."""
    from crushpy.extensions.hooks.hook_config import HookSetup, read_hooks

    root = environment.root if environment.trusted else None
    setup = HookSetup(*read_hooks(environment.paths, root, environment.settings.hooks), Unconfined())
    if setup.commands:
        setup.runner.supervisor(Privileges())
    return setup


def _has_hooks(environment: ProjectEnvironment) -> bool:
    """Whether there may be hooks. Loads nothing."""
    places = [environment.paths.config_dir / "hooks.json", environment.paths.plugins]
    places += [environment.root / name for name in PROJECT_HOOKS] if environment.trusted else []
    return bool(environment.settings.hooks) or any(place.exists() for place in places)


def _rules(
    environment: ProjectEnvironment,
    options: StartOptions,
    workspaces: Workspaces,
    tools: Sequence[AnyTool],
) -> RuleSet:
    permissions = environment.settings.permissions
    readable = [f"view({escaped(str(workspaces.outputs))}/**)"]
    readable += [f"{tool}({escaped(str(workspaces.private))}*/**)" for tool in ("view", "ls", "glob", "grep")]
    folders = map(os.path.realpath, environment.extensions.readable_folders())
    readable += [f"view({escaped(folder)}/**)" for folder in folders]
    table = {**tool_table(), **{tool.name: tool.access for tool in tools}}
    rules = RuleSet.from_strings(
        allow=(*permissions.allow, *readable, *environment.granted_hosts()),
        ask=permissions.ask,
        deny=permissions.deny,
        tools=table,
    )
    rules = msgspec.structs.replace(rules, confined=NOT_ACCEPTED if environment.copy else "")
    return rules.grant(*RuleSet.from_strings(options.allow, tools=table).allow)


async def load_images(environment: ProjectEnvironment, options: StartOptions) -> tuple[Image, ...]:
    """The pictures of `--image`, for the requested model. Raises UsageError; writes nothing."""
    if not options.image:
        return ()
    model = options.model
    if not model and (options.session or options.resume_latest):
        store = environment.store()
        try:
            info = await _find_session(environment, options, store)
            model = info.model if info else ""
        finally:
            await store.close()
    models = _all_models(environment)
    model = model or await _choose_model(environment)
    return await load_pictures(options.image, environment.cwd, lambda: image_limits(models, model))


async def fork_to_open(environment: ProjectEnvironment, options: StartOptions) -> StartOptions:
    """Makes the fork that `at` asks for. Returns the options that open it."""
    store = environment.store()
    try:
        info = await _find_session(environment, options, store)
        fork = await fork_session(store, info, options.at) if info else None
    finally:
        await store.close()
    found = fork.info.id if fork else options.session
    return msgspec.structs.replace(options, session=found, resume_latest=False, fork=False, at="")


async def _load_stored(
    environment: ProjectEnvironment, options: StartOptions, store: Store
) -> LoadedSession | None:
    """The requested stored session, at the tip of its conversation, or a fork of it."""
    info = await _find_session(environment, options, store)
    if info is None:
        return None
    if options.fork or options.at:
        fork = await fork_session(store, info, options.at)
        await store.leases.acquire(fork.info.id)
        return fork
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


async def _find_session(
    environment: ProjectEnvironment, options: StartOptions, store: Store
) -> SessionInfo | None:
    """The session to continue or to fork, with the flags applied; None for a new one."""
    if options.session:
        info = await store.sessions.find_tip(options.session)
        if options.fork or options.at:  # what came of a branch is not what it held
            named = await store.sessions.find(options.session)
            info = named if named.end_reason == RETURN else info
    elif options.resume_latest:
        info = await store.sessions.find_latest(str(environment.cwd))
        if info is None:
            raise UsageError(
                f"There is no conversation to continue in {environment.cwd}.",
                "Leave --continue out to start one, or see `crushpy sessions list --all`.",
            )
    elif options.at:
        raise UsageError(
            f"--at {options.at} needs a session.",
            "Add -s ID, or -c for the latest conversation of this folder.",
        )
    else:
        return None
    if info.imported and not info.system:  # not continued here yet
        info = await _adopt(environment, info)
    changes: dict[str, Any] = {
        "compaction": options.compaction or info.compaction,
        "mode": options.mode or info.mode,
    }
    if options.model and options.model != info.model:
        changes |= {"model": options.model, "breaker": BreakerState()}  # the new window may have room
    return msgspec.structs.replace(info, **changes)


async def _adopt(environment: ProjectEnvironment, info: SessionInfo) -> SessionInfo:
    """An imported session with our system prompt and the user's model. Its original model is used only if no
    model is configured and there is a key for it."""
    model = ""
    if info.model and not environment.settings.model:
        with suppress(ModelError):
            find_endpoint(info.model, environment.settings, os.environ)
            model = info.model
    return msgspec.structs.replace(
        info,
        model=model or await _choose_model(environment),
        compaction=environment.settings.compaction.method,
        system=environment.system_prompt(time.time()),
    )


async def _choose_model(environment: ProjectEnvironment) -> str:
    model = default_model(environment.settings)
    if model != UNNAMED:
        return model
    from crushpy.llm.model_listing import choose_default

    return await choose_default(environment.settings)


def _all_models(environment: ProjectEnvironment) -> Models:
    return Models(environment.settings, lambda _: (), LearntModels(environment.paths.learnt_file))


def _new_session(environment: ProjectEnvironment, options: StartOptions, model: str) -> SessionInfo:
    now = time.time()
    session_id = new_id()
    return SessionInfo(
        id=session_id,
        root_id=session_id,
        cwd=str(environment.cwd),
        model=model,
        compaction=environment.settings.compaction.method,
        system=environment.system_prompt(now, window=lambda: _all_models(environment).window(model)),
        created_at=now,
        updated_at=now,
        mode=cast(Mode, options.mode),
    )
