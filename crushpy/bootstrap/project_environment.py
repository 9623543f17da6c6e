"""The environment of a working folder: its paths, settings, templates and sandbox."""

import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.bootstrap.user_extensions import UserExtensions
from crushpy.core.access import Privileges, ToolTable
from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.paths import Paths, private_dir, project_dir, project_root
from crushpy.core.start_options import StartOptions
from crushpy.core.templates import TemplateProblem, Templates
from crushpy.engine.environment import context_files, describe
from crushpy.permissions.consents import has_consent
from crushpy.permissions.decision import ExecutionContext
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.trust import find_original, is_trusted
from crushpy.security.sanitize import encodable
from crushpy.settings.files import user_files
from crushpy.settings.layers import Loaded, load
from crushpy.settings.schema import LspSettings
from crushpy.tools.shell.jobs import Jobs

if TYPE_CHECKING:
    from crushpy.sandbox.confinement import Unconfined
    from crushpy.storage.store import Store


def start_logging(paths: Paths) -> None:
    """Logs to a file, never to the screen. The file is created with the first record."""
    import logging

    class PrivateFileHandler(logging.FileHandler):
        def _open(self) -> TextIOWrapper:
            private_dir(paths.logs)
            file = super()._open()
            Path(self.baseFilename).chmod(0o600)
            return file

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
            """Ignored: a full disk must not break the code that logs."""

    class RedactingFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            from crushpy.security.redact import redact

            return redact(super().format(record))

    handler = PrivateFileHandler(paths.logs / "crushpy.log", encoding="utf-8", delay=True)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("crushpy")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


Commands = Sequence[tuple[str, tuple[str, ...]]]
"""Those of language servers, with the endings of the files that each is for."""
LSP_SERVERS: dict[str, tuple[str, ...]] = {
    ".py .pyi": ("basedpyright-langserver --stdio || pyright-langserver --stdio", "ruff server"),
    ".ts .tsx .js .jsx .mjs .cjs": ("tsc --lsp --stdio || typescript-language-server --stdio",),
    ".go": ("gopls",),
    ".rs": ("rust-analyzer",),
    ".c .h .cc .cpp .hpp": ("clangd",),
}
"""Commands by the endings of files. Of those between `||` the first one on the PATH is used."""


def find_servers(settings: LspSettings) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The endings of files, and each server for them as the table names it and as it is run; without a
    command if it is not on the PATH."""
    for endings, servers in (LSP_SERVERS | settings.servers).items():
        for named in servers:
            words = [words.split() for words in named.split("||")]
            commands = [(shutil.which(program) or "", *args) for program, *args in words]
            if endings not in settings.servers:
                commands = [command for command in commands if not _is_old_compiler(command[0])]
            yield endings, named, next((command for command in commands if command[0]), ())


def _is_old_compiler(program: str) -> bool:
    """Whether it is a `tsc` that is not known to be TypeScript 7, the first one that is a language server."""
    if Path(program).name != "tsc":
        return False
    try:
        package = (Path(os.path.realpath(program)).parents[1] / "package.json").read_bytes()
        return int(msgspec.json.decode(package, type=dict[str, Any])["version"].partition(".")[0]) < 7
    except (OSError, LookupError, ValueError):
        return True


class ProjectEnvironment:
    """The paths, settings and templates that apply to a folder."""

    def __init__(
        self,
        cwd: Path,
        flags: Mapping[str, object] | None = None,
        *,
        logs: bool = True,
        copy: bool = False,
        accepted: Sequence[str] = (),
        editor_servers: tuple[str, ...] = (),
    ) -> None:
        """`logs`: to a file of our own. `copy`: the folder is that of a fleet's task, and what it brings may
        be that of a trusted project; `accepted`: what its worker lets such tasks do outside.
        `editor_servers`: MCP servers in `flags` that an editor has added: the user is asked about them."""
        self.paths = Paths()
        user_files(self.paths)  # raises if there is no home folder
        if logs:
            start_logging(self.paths)
        self.cwd, self.copy, self.editor_servers = cwd, copy, editor_servers
        self._accepted = accepted
        self.root = project_root(cwd)
        found = find_original(self.paths, self.root) if copy else self.root
        self.original = found or self.root
        """The project that the user's consents are about: the root, or what a copy was made from."""
        self.trusted = found is not None and is_trusted(self.paths, found)
        self.loaded: Loaded = load(self.paths, cwd, trusted=self.trusted, flags=flags or {})
        self.settings = self.loaded.settings
        self._writable_folders()  # raises if one is refused
        self.extensions = UserExtensions(self.paths, self.root if self.trusted else None, own=not copy)
        self.templates = self.find_templates()

    def find_templates(self, on_problem: Callable[[TemplateProblem], None] = lambda _: None) -> Templates:
        project = project_dir(self.cwd) / "templates" if self.trusted else None
        return Templates(self.paths.templates, project, on_problem)

    def guard(self) -> ExecutionContext:
        """The sandbox that confines commands. The first call probes it, which takes milliseconds."""
        from crushpy.sandbox.finding import find_sandbox

        chosen = self.settings.sandbox
        sandbox = find_sandbox(chosen.mode)
        return ExecutionContext(
            self.trusted,
            sandbox.name if sandbox.on else "",
            chosen.auto_allow and sandbox.runs_unasked,
            write=self._writable_folders(),
            opened=self._opened,
            why_not=sandbox.why_not if chosen.mode == "on" and not sandbox.on else "",
            missing=", ".join(sandbox.missing) if chosen.auto_allow else "",
        )

    def _writable_folders(self) -> tuple[str, ...]:
        if not self.settings.sandbox.write or self.copy:
            return ()
        from crushpy.sandbox.filesystem_view import writable_folders

        own = (self.paths.config_dir, self.paths.data_dir)
        return writable_folders(self.settings.sandbox.write, own)

    @property
    def _opened(self) -> tuple[str, ...]:
        """The places that the settings open to commands, hidden or not, as real paths."""
        chosen = self.settings.sandbox
        return tuple(os.path.realpath(Path(place).expanduser()) for place in (*chosen.read, *chosen.write))

    def rules(self, tools: ToolTable, allow: Iterable[str] = ()) -> RuleSet:
        """The rules of the settings, with their owners, and `allow`, which is the user's. What the settings
        of a worker allow does not count for a fleet's task, only what the worker was started with."""
        settings, hosts = self.settings.permissions, self.settings.sandbox.network
        network = ("network" if host == "*" else f"network({host})" for host in hosts)
        allowed = self._accepted if self.copy else (*settings.allow, *network)
        rules = RuleSet.from_strings((*allowed, *allow), settings.ask, settings.deny, tools)
        of_project = {each.rule for each in self.loaded.rules if each.origin.startswith("project: ")}
        of_user = {each.rule for each in self.loaded.rules if not each.origin.startswith("project: ")}
        return rules.owned_by_project(of_project - of_user)

    def worktree_setup(self, folder: Path) -> tuple[str, Privileges]:
        """The command that prepares the worktree `folder`. Raises UsageError if it is the project's, and the
        user has not accepted it as it is there."""
        command = self.settings.worktree.setup
        if command and self.loaded.origins["worktree.setup"].startswith("project:"):
            from crushpy.extensions.hooks.hook_config import setup_text
            from crushpy.sandbox.finding import find_sandbox

            text = setup_text(command, project_root(folder))
            if not has_consent(self.paths, "worktree.setup", os.path.realpath(self.original), text):
                raise UsageError(
                    "worktree.setup of this project is new or has changed; to accept it, run `crushpy trust`"
                )
            if not find_sandbox(self.settings.sandbox.mode).on:
                raise UsageError("worktree.setup of this project needs a sandbox; see `crushpy doctor`")
        hosts = self.settings.sandbox.network
        return command, Privileges(network="*" in hosts, hosts=hosts)

    def store(self) -> "Store":
        from crushpy.storage.store import Store

        return Store(self.paths.database, self.settings.database_url, self.paths.outputs)

    @asynccontextmanager
    async def open_store(self) -> "AsyncGenerator[Store]":
        """The store, which is closed at the end."""
        store = self.store()
        try:
            yield store
        finally:
            await store.close()

    def confine(
        self, cwd: Path, private: Path, outputs: Path, shown: tuple[str, ...] = (), server_mb: int = 0
    ) -> "Unconfined":
        """The sandbox for the commands of one conversation in `cwd`.

        `private` and `outputs` are its own folders; `shown` stays visible wherever it is. `server_mb`: the
        memory of a language server, which may only read `cwd`.
        """
        from crushpy.sandbox.confinement import ResourceLimits, confine_in
        from crushpy.sandbox.filesystem_view import SandboxConfig
        from crushpy.sandbox.finding import find_sandbox

        own = (self.paths.config_dir, self.paths.data_dir)
        private_hosts = self.settings.permissions.private_hosts
        chosen = self.settings.sandbox
        agent = os.environ.get("SSH_AUTH_SOCK", "") if "SSH_AUTH_SOCK" in chosen.env else ""
        readable = (*chosen.read, *self.extensions.readable_folders())
        config = SandboxConfig(
            cwd,
            Path.home(),
            own,
            outputs,
            self.paths.put_aside,
            sockets=(agent,) if agent and Path(agent).is_socket() else (),
            private_hosts=private_hosts,
            opened=self._opened,
            shown=(*shown, *(os.path.realpath(Path(place).expanduser()) for place in readable)),
            locks_own_code=chosen.own_code == "read-only",
            read_only=bool(server_mb),
        )
        limits = ResourceLimits(chosen.processes, server_mb or chosen.memory_mb, chosen.file_mb)
        return confine_in(find_sandbox(chosen.mode), config, private, limits)

    def language_servers(self, options: StartOptions) -> "Commands":
        """The commands of the language servers to use, with the endings of their files."""
        chosen = self.settings.lsp
        used = self.trusted and not options.read_only and (options.interactive or chosen.headless)
        return [(endings, command) for endings, _, command in find_servers(chosen) if used and command]

    def server_jobs(self, cwd: Path, outputs: Path) -> Jobs:
        """The sandbox of one language server, in which the workspace is read-only."""
        places = (cwd, self.paths.sandboxes / new_id(), outputs, ())
        return Jobs(self.settings.sandbox.env, lambda: self.confine(*places, self.settings.lsp.memory_mb))

    def system_prompt(
        self, now: float, cwd: Path | None = None, window: Callable[[], int | None] = lambda: None
    ) -> str:
        """The system prompt of a session that opens now, in `cwd` if given, for a model with this window."""
        cwd = cwd or self.cwd
        files = context_files(cwd, self.paths.config_dir, imports=self.trusted)
        skills = self.extensions.listing(window)
        # A folder name need not be valid Unicode, but a request must be.
        return encodable(f"{self.templates.render('system')}\n\n{describe(cwd, now, files)}{skills}")
