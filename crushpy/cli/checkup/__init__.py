"""What `crushpy doctor` looks at. Every check reports; none of them changes anything or ends the rest."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from crushpy.cli.checkup import home, machine, models, project
from crushpy.cli.checkup.finding import Finding, Scene, fail
from crushpy.errors import CrushpyError, UsageError
from crushpy.paths import Paths
from crushpy.permissions.trust import is_trusted
from crushpy.settings import Loaded, Settings, load
from crushpy.settings.files import user_files

Check = Callable[[Scene], Iterator[Finding] | AsyncIterator[Finding]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("versions", machine.versions),
    ("programs", machine.programs),
    ("terminal", machine.terminal),
    ("files", home.files),
    ("settings", home.settings),
    ("database", home.database),
    ("keys", models.keys),
    ("model", models.model),
    ("local servers", models.local_servers),
    ("project", project.trust),
    ("rules", project.rules),
    ("templates", project.templates),
    ("context files", project.context_files),
)


async def examine(*, online: bool) -> list[Finding]:
    """Everything there is to say, area by area."""
    scene, found = _scene(online)
    for area, check in CHECKS:
        found += [_in(area, finding) for finding in await _all(check, scene)]
    return found


def _scene(online: bool) -> tuple[Scene, list[Finding]]:
    """What the checks look at; where something is missing, a stand-in and a finding that says so."""
    found: list[Finding] = []
    paths = Paths()
    try:
        user_files(paths)
    except CrushpyError as error:
        found.append(_in("files", fail(error.message, error.hint)))
        paths = Paths("/nonexistent")
    try:
        cwd = Path.cwd()
    except OSError:
        found.append(_in("project", fail("The current folder no longer exists.", "Change to another one (cd).")))
        cwd = Path("/")
    trusted = is_trusted(paths, project.root(cwd))
    try:
        loaded = load(paths, cwd, trusted=trusted)
    except UsageError as error:
        found.append(_in("settings", fail(error.message, error.hint or "Mend it; defaults are used below.")))
        loaded = Loaded(Settings(), {})
    return Scene(paths, cwd, loaded, trusted, online), found


async def _all(check: Check, scene: Scene) -> list[Finding]:
    found: list[Finding] = []
    try:
        results = check(scene)
        if isinstance(results, AsyncIterator):
            found += [finding async for finding in results]
        else:
            found += results
    except CrushpyError as error:
        found.append(fail(error.message, error.hint))
    except Exception as error:
        found.append(fail(f"This could not be checked: {type(error).__name__}: {error}"))
    return found
