"""`crushpy sessions rewind|changes`: file changes of a conversation, and going back to a message."""

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    SessionId,
    find_session,
    open_browser,
    print_json,
    print_note,
    print_text,
)
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted
from crushpy.core.paths import Paths
from crushpy.security.sanitize import clean, one_line

if TYPE_CHECKING:
    from crushpy.engine.rewind.file_views import FileView
    from crushpy.engine.rewind.rewinder import PlannedRestoration, Rewinder, RewindOutcome, RewindTarget
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.storage.records import SessionInfo
    from crushpy.undo.restoration import NetChange

NOT_COVERED = (
    "Not covered: changes by commands to ignored files, to .git, and outside of the folder they ran in."
)


_RUN_BY_TOOLS = re.compile(
    r"""(?ix) (?: ^|/ ) (?:
    (?: gnu )? makefile | [^/]+\.mk | justfile | taskfile\.ya?ml | rakefile | gemfile | dockerfile[^/]*
    | cmakelists\.txt | [^/]+\.cmake | meson\.build | configure | build\.(?: rs|gradle|gradle\.kts|zig )
    | settings\.gradle(?:\.kts)? | gradlew | mvnw | pom\.xml | cargo\.toml | package\.json | pyproject\.toml
    | setup\.(?: py|cfg ) | conftest\.py | tox\.ini | noxfile\.py | tasks\.py | sitecustomize\.py | [^/]+\.pth
    | [^/]+\.config\.[cm]?[jt]s | \.envrc | \.pre-commit-config\.ya?ml | \.gitlab-ci\.yml | \.npmrc
    | test_[^/]+\.py | [^/]+_test\.(?: py|go ) | [^/]+\.(?: test|spec )\.[cm]?[jt]sx?
    | [^/]+\.(?: sh|bash|zsh|fish|ps1|bat|cmd )
    | (?: bin|scripts|\.husky|\.githooks|\.vscode|\.devcontainer|\.circleci|\.git|\.venv|venv )/.+
    | (?: \.github/workflows|\.cargo|node_modules/\.bin )/.+ ) $"""
)
"""Names of files that make, package managers, test runners, editors, git and CI run or take commands from."""


def _may_be_run(change: "NetChange") -> bool:
    after = change.after
    if after is None or after.kind not in ("file", "link"):
        return False
    return bool(after.mode & 0o111) or _RUN_BY_TOOLS.search(change.path) is not None


async def changes_command(
    session: SessionId,
    diff: Annotated[bool, typer.Option("--diff", help="Include the diffs.")] = False,
    executable: Annotated[
        bool,
        typer.Option("--executable", help="Only files that are executable or that common tools run."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print all file changes of a conversation. Secrets are redacted."""
    from crushpy.security.redact import redact

    async with _open_rewinder(session) as (_, rewinder, info):
        log, found = await rewinder.changes(info.id)
    if executable:
        found = [(change, view) for change, view in found if _may_be_run(change)]
    if as_json:
        rows: list[dict[str, Any]] = []
        for change, view in found:
            row = {"path": change.path, "action": view.action, "added": view.added, "removed": view.removed}
            row |= {
                "note": view.note,
                "before": change.before.hash,
                "after": change.after.hash if change.after else "",
            }
            rows.append(row | ({"diff": redact(view.unified)} if diff else {}))
        print_json(
            {"session": info.id, "conversation": info.root_id, "files": rows, "not_covered": NOT_COVERED}
        )
        return
    if not found:
        words = "All changes were undone." if log.changes else "No file was changed."
        words = "No changed file is executable or run by common tools." if executable else words
        print_note(words)
    for _, view in found:
        print_text(one_line(view.line) + "\n")
        if diff:
            _print_diff(view)
    if any(entry.source == "bash" for entry in log.changes):
        print_note(NOT_COVERED)


async def rewind_command(
    session: SessionId,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="MESSAGE",
            help="A message's id from `sessions show --json`, or a prefix of it.",
        ),
    ],
    files: Annotated[bool, typer.Option("--files", help="Restore the files.")] = False,
    conversation: Annotated[
        bool, typer.Option("--conversation", help="Continue in a branch that ends there.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Go back to a message: files, conversation, or both if neither is given.

    Going back to a prompt ends before it. Prints the id of the branch that continues the conversation.
    """
    if not files and not conversation:
        files = conversation = True
    async with _open_rewinder(session) as (browser, rewinder, info):
        target = await rewinder.target(info.id, to)
        if files and not dry_run:
            await browser.require_unused(info)
        planned = await rewinder.plan_rewind(info.id, target) if files else None
        text = _describe(target, planned, conversation=conversation)
        if dry_run:
            print_text(text)
            for view in planned.views if planned else ():
                _print_diff(view)
            return
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(f"this needs a confirmation:\n{text.rstrip()}", "Add --yes to do it.")
            print(text, file=sys.stderr, end="")
            typer.confirm("Go back?", abort=True, err=True)
        if conversation:
            outcome = await rewinder.rewind(info, target, planned)
        else:
            assert planned is not None
            outcome = await rewinder.apply(info, planned)
            await rewinder.tell_agent(info, outcome)
    _print_outcome(outcome)


@asynccontextmanager
async def _open_rewinder(name: str) -> "AsyncGenerator[tuple[SessionBrowser, Rewinder, SessionInfo]]":
    """A session and its rewinder; an interrupted restoration is finished first."""
    from crushpy.settings import load

    async with open_browser() as browser:
        info = await find_session(browser, name)
        paths = Paths()
        rewinder = browser.rewinder(info, paths.undo, load(paths, Path.cwd()).settings.undo)
        for words in await rewinder.finish(info.root_id):
            print_note(f"crushpy: {words}")
        yield browser, rewinder, info


def _print_diff(view: "FileView") -> None:
    from crushpy.security.redact import redact

    if view.unified:
        print_text(f"\n{clean(redact(view.unified))}\n\n")


def _describe(target: "RewindTarget", planned: "PlannedRestoration | None", *, conversation: bool) -> str:
    position = "before" if target.ends_before else "after"
    lines: list[str] = []
    if conversation:
        quote = one_line(target.message.text)[:60] or target.message.id
        lines.append(
            f"The conversation continues in a branch that ends {position} {target.message.role} {quote!r}."
        )
    if planned is not None:
        lines.append(
            f"Files to restore: {planned.title}." if planned.views else "No file has to be restored."
        )
        lines += [f"  {one_line(view.line)}" for view in planned.views]
    return "\n".join(lines) + "\n"


def _print_outcome(outcome: "RewindOutcome") -> None:
    """Prints the branch's id to stdout and the rest to stderr. Exit code 1 if a file was not restored."""
    if outcome.restored:
        verb = "is" if len(outcome.restored) == 1 else "are"
        print_note(f"{counted(len(outcome.restored), 'file')} {verb} restored.")
    for conflict in outcome.conflicts:
        print_note(one_line(f"not restored: {conflict.path}: {conflict.reason}"))
    if outcome.session is not None:
        print(outcome.session.id)
    if outcome.conflicts:
        raise typer.Exit(1)


COMMANDS = {"changes": changes_command, "rewind": rewind_command}
