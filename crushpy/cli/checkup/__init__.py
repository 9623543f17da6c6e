"""The checks of `crushpy doctor`. None changes anything, and a failing check does not stop the others."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from crushpy.cli.checkup import installation, providers
from crushpy.cli.checkup.installation import CheckContext, Finding, fail
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.paths import Paths, project_root
from crushpy.permissions.trust import is_trusted
from crushpy.settings.files import user_files
from crushpy.settings.layers import Loaded, load
from crushpy.settings.schema import Settings

Check = Callable[[CheckContext], Iterator[Finding] | AsyncIterator[Finding]]
Report = dict[str, list[Finding]]
"""Findings by area."""

CHECKS: dict[str, Check] = {
    "versions": installation.versions,
    "programs": installation.programs,
    "sandbox": installation.sandbox,
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
    "extensions": installation.check_extensions,
}

MISSING_FOLDER = "/nonexistent"
"""Replaces a missing home or working folder."""


async def run_checks(*, online: bool, escapes: bool = False) -> Report:
    """Runs all checks; with `escapes`, only that of escapes from the sandbox."""
    checks = {"sandbox": installation.try_escapes} if escapes else CHECKS
    report: Report = {area: [] for area in CHECKS}
    context = _build_context(report, online)
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


def _build_context(report: Report, online: bool) -> CheckContext:
    """The input of the checks. What is missing is reported and replaced by a default."""
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
