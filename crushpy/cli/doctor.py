"""`crushpy doctor`: checks the installation and suggests fixes. No check changes anything."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crushpy.cli.command_helpers import AsJson, add_command, option, print_either, print_note
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Json
from crushpy.core.paths import Paths, project_root
from crushpy.security.private_files import new_file
from crushpy.security.redact import redact, redact_data
from crushpy.security.sanitize import clean
from crushpy.util.posix import login_name

if TYPE_CHECKING:
    from crushpy.cli.checkup.installation import CheckContext, Finding

    Report = dict[str, list[Finding]]
    """Findings by area."""
    Check = Callable[[CheckContext], Iterator[Finding] | AsyncIterator[Finding]]

MISSING_FOLDER = "/nonexistent"
"""Replaces a missing home or working folder."""


def register(app: typer.Typer) -> None:
    add_command(app, "doctor", doctor)


async def doctor(
    online: Annotated[bool, option("--online", "Also send the model one short request.")] = False,
    sandbox: Annotated[bool, option("--sandbox", "Instead, test escapes from the sandbox.")] = False,
    report_file: Annotated[
        Path | None, option("--report", "Also write a new file for a bug report, redacted.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the installation and report problems.

    Without --online only model servers on this machine are contacted. Exit codes: 0 no failure, 1 a check
    failed.
    """
    report = await run_checks(online=online, escapes=sandbox)
    marks = [finding.mark for found in report.values() for finding in found]
    rows: list[Json] = []
    lines: list[str] = []
    for area, found in report.items():
        rows += [{"area": area, **msgspec.to_builtins(finding)} for finding in found]
        lines.append(area)
        for finding in found:
            lines.append(f"  {finding.mark:<4}  {clean(redact(finding.text))}")
            lines += [f"        {clean(redact(line))}" for line in finding.hint.splitlines()]
    broken = marks.count("fail") or "nothing"
    lines += ["", f"{broken} broken, {marks.count('warn')} to look at"]
    print_either(as_json, redact_data(rows), lines)
    if report_file:
        _write_report(report_file, rows)
    if "fail" in marks:
        raise typer.Exit(1)


def _write_report(file: Path, rows: list[Json]) -> None:
    """Without secrets, and without the user's name in paths. Raises UsageError if it cannot be written."""
    from crushpy.cli.version import describe_version

    content = msgspec.json.encode(redact_data({"version": describe_version(), "checks": rows}))
    for place, mark in {str(Path.home()): "~", login_name(): "USER"}.items():
        content = content.replace(place.encode(), mark.encode())
    try:
        with new_file(file, replace=False) as stream:
            stream.write(msgspec.json.format(content, indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    print_note(f"crushpy: {file} is for a bug report. Read it before you send it.")


async def run_checks(*, online: bool, escapes: bool = False) -> "Report":
    """Runs all checks; with `escapes`, only that of escapes from the sandbox. A failing check does not stop
    the others."""
    from crushpy.cli.checkup import installation, providers

    every: dict[str, Check] = {
        "versions": installation.versions,
        "programs": installation.programs,
        "sandbox": installation.try_escapes if escapes else installation.sandbox,
        "language servers": installation.check_language_servers,
        "terminal": installation.terminal,
        "files": installation.files,
        "settings": installation.settings,
        "database": installation.database,
        "keys": providers.keys,
        "model": providers.model,
        "local servers": providers.local_servers,
        "project": installation.check_trust,
        "permissions": installation.permissions,
        "templates": installation.templates,
        "context files": installation.check_context_files,
        "hooks": installation.check_hooks,
        "extensions": installation.check_extensions,
    }
    report: Report = {area: [] for area in every}
    context, fail = _build_context(report, online), installation.fail
    checks = {"sandbox": every["sandbox"]} if escapes else every
    if sys.platform == "win32":  # the others concern commands, which do not run there
        checks = {area: every[area] for area in ("versions", "terminal", "files", "settings", "keys")}
    for area, check in checks.items():
        try:
            found = check(context)
            if isinstance(found, AsyncIterator):
                async for finding in found:
                    report[area].append(finding)
            else:
                report[area] += found
        except CrushpyError as error:
            report[area].append(fail(error.message, error.hint))
        except Exception as error:
            report[area].append(fail(f"the check failed: {type(error).__name__}: {error}"))
    return {area: found for area, found in report.items() if area in checks or found}


def _build_context(report: "Report", online: bool) -> "CheckContext":
    """The input of the checks. What is missing is reported and replaced by a default."""
    from crushpy.cli.checkup.installation import CheckContext, fail
    from crushpy.permissions.trust import is_trusted
    from crushpy.settings.files import user_files
    from crushpy.settings.layers import Loaded, load
    from crushpy.settings.schema import Settings

    paths = Paths()
    try:
        user_files(paths)
    except CrushpyError as error:
        report["files"].append(fail(error.message, error.hint))
        paths = Paths(MISSING_FOLDER)
    try:
        cwd = working_folder()
    except UsageError as error:
        report["project"].append(fail(error.message, error.hint))
        cwd = Path(MISSING_FOLDER)
    trusted = is_trusted(paths, project_root(cwd))
    try:
        loaded = load(paths, cwd, trusted=trusted)
    except UsageError as error:
        hint = f"{error.hint} Until then the defaults are checked below.".strip()
        report["settings"].append(fail(error.message, hint))
        loaded = Loaded(Settings(), {})
    return CheckContext(paths, cwd, loaded, trusted, online)
