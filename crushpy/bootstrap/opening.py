"""Opens conversations: finds or creates the session, and builds the services that it needs."""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from crushpy.bootstrap.mcp_servers import McpServers
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.bootstrap.slash_commands import SlashCommands
from crushpy.bootstrap.user_extensions import skill_tools
from crushpy.bootstrap.workspaces import ConversationFolders, Workspaces
from crushpy.core.access import Mode, Privileges
from crushpy.core.boundary import RETURN
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Image, Origin
from crushpy.core.paths import PROJECT_HOOKS
from crushpy.core.start_options import StartOptions
from crushpy.core.templates import TemplateProblem
from crushpy.engine.agents.agent import Agent
from crushpy.engine.agents.scope import AgentScope, Services, new_gauge
from crushpy.engine.agents.subagents import Subagents
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
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.engine.session.session import LiveSession, LoadedSession, load_session
from crushpy.engine.session.timeline import Timeline
from crushpy.engine.session.tree import fork_session
from crushpy.engine.spending import Spending
from crushpy.engine.step.toolset import Toolset
from crushpy.engine.turn.limits import Limits
from crushpy.engine.user_settings import UserSettings
from crushpy.llm.errors import ModelError
from crushpy.llm.learnt import LearntModels
from crushpy.llm.protocol import Provider
from crushpy.llm.provider_factory import UNNAMED, default_model, find_endpoint
from crushpy.permissions.rules import WEB_SEARCH_RULE, RuleSet, escaped
from crushpy.security.private_files import read_stored, write_private
from crushpy.security.sanitize import encodable
from crushpy.storage.records import BreakerState, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, Workspace
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
    origin: Origin = "sdk"
    """Who writes the prompts."""
    wrap_hooks: Callable[[Hooks], Hooks] = lambda hooks: hooks
    """Gets the hooks of the settings and returns those to use."""


async def open_conversation(
    environment: ProjectEnvironment, options: StartOptions, additions: HostAdditions | None = None
) -> Conversation:
    """Opens a new or a stored conversation. A new one is stored with its first prompt."""
    put_aside = [] if options.read_only else await _recover_guarded(environment)
    store = environment.store()
    store.open_in_background()
    loaded = await _load_stored(environment, options, store)
    if loaded is None:
        model = await _choose_model(environment)
        loaded = LoadedSession(_new_session(environment, options, model), stored=False)
    if environment.copy and loaded.info.root_id != options.session:  # it becomes part of a path and a rule
        raise UsageError(f"A stored session is not the conversation of list {options.session}.")
    runtime = _Opening(
        environment, options, store, loaded, additions or HostAdditions(origin="typed")
    ).build()
    conversation = Conversation(runtime)
    await runtime.spending.read()
    if not loaded.stored and (new := _new_instructions(environment.paths.instructions_file, loaded.info)):
        runtime.events(Notice(f"New or changed instructions since the last start here: {', '.join(new)}"))
    for problem in () if options.interactive else conversation.approvals.hooks.problems:
        runtime.events(Notice(f"Hooks: {problem}", "warning"))
    for text in put_aside:
        runtime.events(Notice(f"crushpy was killed while a command was running: {text}", "warning"))
    for name in options.add_dir:
        await conversation.files.add_folder(name)
    if not options.read_only and any_unfinished(environment.paths.undo):
        await conversation.files.recover()
    if not options.read_only and environment.paths.worktrees.is_dir():
        from crushpy.engine.agents.task_workspaces import recover_worktrees

        for text in await asyncio.to_thread(lambda: list(recover_worktrees(environment.paths.worktrees))):
            runtime.events(Notice(text, "warning"))
    return conversation


async def _recover_guarded(environment: ProjectEnvironment) -> list[str]:
    """Puts aside what commands of a killed process left, before anything of the project runs."""
    if not any(environment.paths.sandboxes.glob("*.guarded")):
        return []
    from crushpy.sandbox.killed_commands import recover_guarded

    return await asyncio.to_thread(lambda: list(recover_guarded(environment.paths, environment.cwd)))


def _new_instructions(file: Path, info: SessionInfo) -> list[str]:
    """The instruction files that are new or changed since the last start in this folder."""
    texts = encodable(instruction_texts(info.system))
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
    folders, folder = read_stored(file, dict[str, dict[str, str]]) or {}, encodable(info.cwd)
    before = folders.get(folder)
    if hashes != before:
        folders[folder] = hashes
        with suppress(OSError):  # then the next start says it again
            write_private(file, msgspec.json.encode(folders))
    return [path for path in hashes if before is not None and before.get(path) != hashes[path]]


class _Opening(msgspec.Struct, frozen=True):
    """What the services of a conversation are built from. Each is built after all that it needs."""

    environment: ProjectEnvironment
    options: StartOptions
    store: Store
    loaded: LoadedSession
    additions: HostAdditions

    def build(self) -> Runtime:
        setup = self._read_hooks()
        environment, paths, info = self.environment, self.environment.paths, self.loaded.info
        options = self.options
        events = EventBus(opened=self.loaded.stored)
        self.store.listen(lambda text: events(Notice(text, "warning"), now=True))
        templates = environment.find_templates(partial(_tell_problem, events))
        folders = ConversationFolders(paths.outputs / info.root_id, paths.sandboxes / new_id())
        rules = self._rules(folders)
        lsp = environment.language_servers(options)
        workspaces = Workspaces(environment, folders, lambda: approvals.folders, self.store, events, lsp=lsp)
        models = self._models(rules)
        tools = self._tools(models.window(info.model), workspaces.mcp, lsp=bool(lsp))
        toolset = Toolset(tools, templates, on_edit=lambda: events(Notice(TEMPLATE_EDITED)))
        models = models.for_tools(toolset)
        gauge, phrases = new_gauge(models, self.loaded), rule_phrases(templates)
        session = LiveSession(self.store, self.loaded, events, gauge.exact_size, phrases=phrases)
        events.take_notes(Timeline(self.store, session).note)
        workspace, gained = workspaces.make_main(self.additions.files)
        undo_files = UndoFiles(paths.undo, workspace.cwd, environment.settings.undo)
        recorder = ChangeRecorder(self.store, undo_files, workspace.jobs, session, events)
        user_settings = UserSettings(environment.settings, paths, environment.cwd)
        make_hooks = partial(self._hooks, setup, session, workspace, events)
        asks = options.interactive or self.additions.answers
        permissions = PermissionOptions(rules, asks, options.yolo, environment.guard, make_hooks)
        approvals = Approvals(permissions, workspace, session, user_settings, events)
        for folder in approvals.folders:
            undo_files.add(folder)
        services = Services(
            self.store,
            user_settings,
            templates,
            approvals,
            workspace,
            AuditTrail(self.store, info.root_id),
            recorder,
            gained,
            options.interactive,
            environment.trusted,
            self.additions.origin,
        )
        spending = self._spending(services, session, models, events)
        scope = AgentScope(services, session, models.limited_by(spending), gauge, events)
        return self._runtime(scope, spending, recorder, toolset, workspaces, events)

    def _hooks(
        self,
        setup: "HookSetup | None",
        session: LiveSession,
        workspace: Workspace,
        events: EventBus,
        approvals: Approvals,
    ) -> Hooks:
        hooks = Hooks()
        if setup is not None:
            from crushpy.extensions.hooks.command_hooks import CommandHooks

            hooks = CommandHooks(setup, session, approvals, workspace, events)
        return self.additions.wrap_hooks(hooks)

    def _spending(
        self, services: Services, session: LiveSession, models: Models, events: EventBus
    ) -> Spending:
        return Spending(
            self.store,
            session,
            str(self.environment.root),
            lambda: services.user_settings.current.budget,
            models.has_price,
            services.approvals.ask_to_go_on if services.has_user else None,
            events,
        )

    def _runtime(
        self,
        scope: AgentScope,
        spending: Spending,
        recorder: ChangeRecorder,
        toolset: Toolset,
        workspaces: Workspaces,
        events: EventBus,
    ) -> Runtime:
        services, options, extensions = scope.services, self.options, self.environment.extensions
        pins = PinService(scope)
        subagents = Subagents(scope, toolset, extensions.agent)
        agent = Agent(scope, toolset.tools, subagents.run, pins)
        return Runtime(
            events,
            scope,
            agent,
            subagents,
            pins,
            recorder,
            Limits(options.max_steps, options.max_tokens, options.max_cost),
            spending,
            self.environment.paths.worktrees,
            partial(workspaces.open_worktree, services),
            workspaces.mcp,
            SlashCommands(extensions, workspaces.mcp, agent, events),
        )

    def _models(self, rules: RuleSet) -> Models:
        settings = self.environment.settings
        forbidden = any(rule.tool == WEB_SEARCH_RULE for rule in (*rules.deny, *rules.ask))
        learnt = LearntModels(self.environment.paths.learnt_file)
        web_search = settings.web_search == "on" and not forbidden
        return Models(settings, learnt, self.additions.providers, web_search=web_search)

    def _tools(self, window: int | None, servers: McpServers, *, lsp: bool) -> tuple[AnyTool, ...]:
        """Those that the model gets; `window`: the model's."""
        system = self.loaded.info.system
        if self.environment.copy:
            # A copy has the skills of this machine, and the stored prompt names those of the submitter's.
            system = self.environment.extensions.listing(lambda: window)
        tools = (
            *all_tools(lsp=lsp),
            *skill_tools(system),
            *servers.tools(window),
            *self.additions.tools,
        )
        return tuple(filter(self.additions.offers, tools))

    def _rules(self, folders: ConversationFolders) -> RuleSet:
        environment = self.environment
        readable = [f"view({escaped(str(folders.outputs))}/**)"]
        readable += [
            f"{tool}({escaped(str(folders.private))}*/**)" for tool in ("view", "ls", "glob", "grep")
        ]
        added = map(os.path.realpath, environment.extensions.readable_folders())
        readable += [f"view({escaped(folder)}/**)" for folder in added]
        table = {**tool_table(), **{tool.name: tool.access for tool in self.additions.tools}}
        rules = environment.rules(table, readable)
        rules = msgspec.structs.replace(rules, confined=NOT_ACCEPTED if environment.copy else "")
        return rules.grant(*RuleSet.from_strings(self.options.allow, tools=table).allow)

    def _read_hooks(self) -> "HookSetup | None":
        """The process that runs hooks starts here, before everything else is made: the first hook, which may
        come right after that, would have to wait for it."""
        environment = self.environment
        places = [environment.paths.config_dir / "hooks.json", environment.paths.plugins]
        places += [environment.root / name for name in PROJECT_HOOKS] if environment.trusted else []
        used = self.additions.answers or not self.options.read_only
        if not used or not (environment.settings.hooks or any(place.exists() for place in places)):
            return None
        from crushpy.extensions.hooks.hook_config import HookSetup, read_hooks
        from crushpy.sandbox.confinement import Unconfined

        root = environment.root if environment.trusted else None
        plugins = not environment.copy
        found = read_hooks(environment.paths, root, environment.settings.hooks, plugins=plugins)
        setup = HookSetup(*found, Unconfined(), environment.original)
        if setup.commands:
            setup.runner.supervisor(Privileges())
        return setup


def _tell_problem(events: EventBus, problem: TemplateProblem) -> None:
    text = f"{problem.message}. Another template is used instead. {problem.hint}"
    events(Notice(text, "warning"))


async def load_images(environment: ProjectEnvironment, options: StartOptions) -> tuple[Image, ...]:
    """The pictures of `--image`, for the requested model. Raises UsageError; writes nothing."""
    if not options.image:
        return ()
    model = options.model
    if not model and (options.session or options.resume_latest):
        async with environment.open_store() as store:
            info = await _find_session(environment, options, store)
            model = info.model if info else ""
    models = _all_models(environment)
    model = model or await _choose_model(environment)
    return await load_pictures(options.image, environment.cwd, lambda: image_limits(models, model))


async def fork_to_open(environment: ProjectEnvironment, options: StartOptions) -> StartOptions:
    """Makes the fork that `at` asks for. Returns the options that open it."""
    async with environment.open_store() as store:
        info = await _find_session(environment, options, store)
        fork = await fork_session(store, info, options.at) if info else None
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
        changed = options.model or options.compaction or options.mode or options.budget
        if changed or info.imported:
            await store.sessions.update(
                info.id,
                model=info.model,
                compaction=info.compaction,
                system=info.system or None,
                breaker=info.breaker,
                mode=info.mode or None,
                budget=info.budget,
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
        "budget": options.budget or info.budget,
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
            find_endpoint(info.model, environment.settings)
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
    return Models(environment.settings, LearntModels(environment.paths.learnt_file))


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
        budget=options.budget or environment.settings.budget.conversation,
    )
