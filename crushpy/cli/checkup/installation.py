"""Checks of versions, programs, sandbox, terminal, files, settings, database and project."""

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data, counted
from crushpy.core.paths import PROJECT_FOLDER, Paths, private_dir, project_root, provided_files
from crushpy.security.programs import find_program
from crushpy.settings.layers import Loaded
from crushpy.settings.schema import Settings
from crushpy.storage.location import Location


class Finding(Data, frozen=True, omit_defaults=False):
    """One line of the report. Only `fail` means that something is broken."""

    mark: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""
    """What to do."""


ok, warn, fail = (partial(Finding, mark) for mark in ("ok", "warn", "fail"))


class CheckContext(Data, frozen=True):
    paths: Paths
    cwd: Path
    loaded: Loaded
    trusted: bool
    """The project around `cwd` may bring settings and templates."""
    online: bool
    """One request to the model is allowed."""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def location(self) -> Location:
        return Location(self.paths.database, self.settings.database_url)


REPORTED_PACKAGES = ("textual", "litellm")
"""Packages whose version bug reports need."""

_REINSTALL = "Install crushpy again: bin/setup in a checkout, or pip install --force-reinstall crushpy."
TERMINAL_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "TMUX", "STY", "SSH_CONNECTION", "CI")


def versions(_: CheckContext) -> Iterator[Finding]:
    """Also of the packages in REPORTED_PACKAGES."""
    from importlib import metadata

    from crushpy import __version__
    from crushpy.cli.version import install_method, update_command
    from crushpy.storage.sqlite_file import sqlite_version

    yield ok(f"crushpy {__version__}, installed as {install_method()}", f"To update: {update_command()}")
    yield ok(f"Python {platform.python_version()} ({sys.executable})")
    yield ok(f"SQLite {sqlite_version()}")
    yield ok(f"{platform.system()} {platform.release()} {platform.machine()}")
    if sys.platform == "win32":
        yield fail("commands cannot be run on Windows itself", "Install crushpy in WSL 2.")
    for name in REPORTED_PACKAGES:
        try:
            yield ok(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield fail(f"{name} is not installed", _REINSTALL)


def programs(_: CheckContext) -> Iterator[Finding]:
    from crushpy.tools.search.ripgrep import MISSING, WAY_OUT, find_ripgrep
    from crushpy.tools.shell.process import shell

    program = shell()[0]
    if program.endswith("bash"):
        yield ok(f"bash: {program}")
    else:
        yield warn(
            f"bash was not found; commands run in {program}", "Install bash: models write commands for it."
        )
    ripgrep = find_ripgrep()
    if ripgrep:
        yield ok(f"ripgrep: {ripgrep}")
    else:
        yield fail(f"{MISSING}: grep, glob and file completion do not work", WAY_OUT)
    git = find_program("git")
    yield ok(f"git: {git}") if git else warn("git was not found", "Install git.")


def check_language_servers(context: CheckContext) -> Iterator[Finding]:
    from crushpy.bootstrap.project_environment import find_servers

    for endings, named, command in find_servers(context.settings.lsp):
        yield ok(f"{endings}: {command[0] if command else f'{named} is not on the PATH'}")
    if not context.trusted:
        yield ok("this project is not trusted, so none is used: run `crushpy trust`")


def terminal(_: CheckContext) -> Iterator[Finding]:
    known = {name: os.environ.get(name, "") for name in TERMINAL_VARIABLES}
    width, height = shutil.get_terminal_size()
    words = [f"{name} {value if 'TERM' in name else 'set'}" for name, value in known.items() if value]
    yield ok(", ".join([*words, f"{width} x {height}"]))
    if not sys.stdout.isatty():
        yield ok("the output is not a terminal")
    elif known["TERM"] in ("", "dumb"):
        yield warn("TERM names no terminal: the app cannot run", "Use a terminal, or `crushpy run`.")
    elif width < 60 or height < 15:
        yield warn(f"{width} x {height} is small for the app", "Make the window larger.")
    encoding = sys.stdout.encoding or "unknown"
    if encoding.lower().replace("-", "") == "utf8":
        yield ok("Unicode: UTF-8")
    else:
        yield warn(f"the terminal's encoding is {encoding}", "Set a UTF-8 locale, such as LANG=C.UTF-8.")


_ESCAPE_HINT = "A command could escape from the sandbox. Turn off sandbox.auto_allow and report this."

_WEAKER_HINT = "Commands that change anything ask. Try it with crushpy doctor --sandbox."


def sandbox(context: CheckContext) -> Iterator[Finding]:
    from crushpy.sandbox.finding import find_sandbox

    found = find_sandbox(context.settings.sandbox.mode)
    if found.on and found.why_not:
        yield warn(f"commands run in {found.name}, which restricts less: {found.why_not}", _WEAKER_HINT)
    elif found.on:
        yield ok(f"commands run in {found.name} ({found.program})", "Try it with crushpy doctor --sandbox.")
    else:
        yield warn(f"commands run without a sandbox: {found.why_not}", "Commands that change anything ask.")


async def try_escapes(context: CheckContext) -> AsyncIterator[Finding]:
    from crushpy.sandbox.finding import working_sandbox
    from crushpy.sandbox.hidden_paths import hidden_places, variable_files
    from crushpy.tools.shell.escape_checks import EscapeTrial

    found = working_sandbox()
    if not found.on:
        yield fail(f"there is no sandbox to test: {found.why_not}")
        return
    if found.why_not:
        yield warn(f"tried in {found.name}: {found.why_not}", _WEAKER_HINT)
    for kind, places in hidden_places().places.items():
        yield ok(f"hidden: {kind}", ", ".join(places))
    files, is_complete = variable_files(Path.home(), Path.cwd())
    said = f"hidden: {counted(len(files), '.env file')} outside {Path.cwd()}"
    yield ok(said if is_complete else f"{said}, as many as were found in 0.1 s")
    kinds: dict[str, list[bool]] = {}
    trial = EscapeTrial(found, private_dir(context.paths.sandboxes), Path.home())
    try:
        async for attempt in trial.run():
            kinds.setdefault(attempt.kind, []).append(attempt.held)
            if attempt.held:
                yield ok(f"held: {attempt.name}", attempt.said)
            elif attempt.known:
                yield warn(f"not held by {found.name}: {attempt.name}", attempt.said)
            else:
                yield fail(f"escaped: {attempt.name}", "\n".join(filter(None, (attempt.said, _ESCAPE_HINT))))
    finally:
        await trial.close()
    for kind, held in kinds.items():
        said = f"{kind}: {sum(held)} of {len(held)} attempts held"
        yield ok(f"protected: {said}") if all(held) else warn(f"not protected: {said}")


def files(context: CheckContext) -> Iterator[Finding]:
    paths = context.paths
    places = {
        "config": paths.config_file,
        "state": paths.state_file,
        "templates": paths.templates,
        "log": paths.logs / "crushpy.log",
        "outputs": paths.outputs,
    }
    location, file = context.location, context.location.file
    yield ok(f"database   {location.place}{'' if location.server else f'  ({_describe_file(file)})'}")
    if not location.server and file.is_file() and not os.access(file, os.W_OK):
        yield fail(f"{file} is not writable", "Change its permissions: chmod u+w, as its owner.")
    for name, path in places.items():
        yield ok(f"{name:<9}  {path}  ({_describe_file(path)})")
    for folder in dict.fromkeys((paths.config_dir, paths.data_dir)):
        nearest = next((each for each in (folder, *folder.parents) if each.exists()), folder)
        if not nearest.is_dir():
            yield fail(f"{nearest} is not a folder", "Move it away, or set CRUSHPY_HOME.")
        elif not os.access(nearest, os.W_OK | os.X_OK):
            yield fail(f"{nearest} is not writable", "Change its permissions, or set CRUSHPY_HOME.")


def _describe_file(path: Path) -> str:
    try:
        if path.is_dir():
            return "a folder"
        size = path.stat().st_size
    except OSError:
        return "does not exist yet"
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size / 1e3:.1f} kB"


def settings(context: CheckContext) -> Iterator[Finding]:
    for warning in context.loaded.warnings:
        yield warn(warning)
    chosen = {key: origin for key, origin in context.loaded.origins.items() if origin != "default"}
    for key, origin in sorted(chosen.items()):
        yield ok(f"{key}  ({origin})")
    if context.loaded.origins and not chosen:
        yield ok("no setting was changed")


async def database(context: CheckContext) -> AsyncIterator[Finding]:
    location, file = context.location, context.location.file
    if location.server:
        from crushpy.storage.storage_thread import examine_server

        for found in await asyncio.to_thread(examine_server, location.server):
            yield Finding(*found)
        return
    if not file.exists():
        yield ok("does not exist yet: the first conversation creates it")
        return
    from crushpy.storage.store import Store

    store = Store(context.paths.database, context.settings.database_url)
    try:
        problems = await store.check()
        for warning in store.warnings:
            yield fail(warning)
        for problem in problems[:10]:
            yield fail(problem, f"`sqlite3 {file} .recover` may recover its content.")
        if problems:
            return
        conversations = counted(len(await store.sessions.list_tips()), "conversation")
        yield ok(f"sound, {conversations}, {_describe_file(file)}")
    finally:
        await store.close()


def check_trust(context: CheckContext) -> Iterator[Finding]:
    from crushpy.permissions.trust import trusted

    root = project_root(context.cwd)
    names = ", ".join(str(path.relative_to(root)) for path in provided_files(root))
    if context.trusted:
        yield ok(f"{root} is trusted: {names or 'it brings nothing'}")
    elif names:
        yield warn(f"{root} is not trusted: its {names} is ignored", "Review it, then run `crushpy trust`.")
    else:
        yield ok(f"{root} is not trusted and brings nothing")
    for folder in trusted(context.paths):
        if not folder.is_dir():
            yield warn(f"{folder} is trusted but no longer exists", f"crushpy untrust {folder}")
        elif folder != root.resolve():
            yield ok(f"{folder} is also trusted")


def permissions(context: CheckContext) -> Iterator[Finding]:
    from crushpy.permissions.rules import RuleSet
    from crushpy.tools.registry import tool_table

    chosen = context.settings.permissions
    RuleSet.from_strings(allow=chosen.allow, ask=chosen.ask, deny=chosen.deny, tools=tool_table())
    yield ok(f"{len(chosen.allow)} allow, {len(chosen.ask)} ask, {len(chosen.deny)} deny rules")


def templates(context: CheckContext) -> Iterator[Finding]:
    from crushpy.core import templates as prompts

    names = prompts.shipped_names()
    if "system" not in names:
        yield fail(f"the shipped templates are not in {prompts.shipped_dir()}", "Install crushpy again.")
        return
    yield ok(f"{len(names)} shipped ({prompts.shipped_dir()})")
    project = project_root(context.cwd) / PROJECT_FOLDER / "templates"
    folders = {"yours": context.paths.templates} | ({"the project's": project} if context.trusted else {})
    for owner, folder in folders.items():
        for path in sorted((*folder.rglob("*.md"), *folder.glob("*.toml"))):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name not in names:
                yield warn(f"{path} is never used", f"Known templates: {', '.join(names)}.")
                continue
            try:
                prompts.template_from_file(name, path)
                yield ok(f"{name} is {owner} ({path})")
            except prompts.TemplateProblem as problem:
                yield fail(problem.message, f"{problem.hint} Until then another one is used.")


def check_context_files(context: CheckContext) -> Iterator[Finding]:
    from crushpy.engine import environment

    found = environment.context_files(context.cwd, context.paths.config_dir)
    for file in found:
        length = f"{len(file.text):,} characters"
        if file.truncated_chars:
            yield warn(
                f"{file.path}  ({length}; {file.truncated_chars:,} more are truncated)",
                f"Shorten it: at most {environment.MAX_FILE_CHARS:,} of a file and "
                f"{environment.MAX_TOTAL_CHARS:,} of all are sent to the model.",
            )
        else:
            yield ok(f"{file.path}  ({length})")
    if not found:
        yield ok(f"none ({', '.join(environment.NAMES)} from the project's root down to here)")


def check_hooks(context: CheckContext) -> Iterator[Finding]:
    from crushpy.extensions.hooks.hook_config import hooks_text, read_hooks
    from crushpy.permissions.consents import has_consent

    root = project_root(context.cwd)
    hooks, problems = read_hooks(context.paths, root if context.trusted else None, context.settings.hooks)
    for problem in problems:
        yield fail(problem, "See docs/hooks.md.")
    for hook in hooks:
        yield ok(f"{f'{hook.event} {hook.matcher}'.strip()}: {hook.command}  ({hook.file})")
    of_project = [hook for hook in hooks if hook.project]
    where, text = os.path.realpath(root), hooks_text(of_project, root)
    if of_project and not has_consent(context.paths, "hooks", where, text):
        yield warn("the project's hooks are new or have changed: they do not run", "Run `crushpy trust`.")


def check_extensions(context: CheckContext) -> Iterator[Finding]:
    from crushpy.bootstrap.user_extensions import KINDS, UserExtensions

    extensions = UserExtensions(context.paths, project_root(context.cwd) if context.trusted else None)
    for kind in KINDS:
        found = extensions.find(kind)
        for extension in found:
            if extension.status != "loaded":
                yield warn(
                    f"{extension.file} is {extension.status}: {extension.reason}", "See docs/extensions.md."
                )
        yield ok(f"{len(extensions.use(kind))} of {len(found)} {kind} can be used")
