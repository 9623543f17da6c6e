"""Checks of the sandbox: the ways out of it are tried, and what held is said."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from crushpy.cli.checkup.finding import Finding, Scene, fail, ok, warn
from crushpy.core.paths import private_dir

_REPORT = "A command could get out of the sandbox here. Turn off sandbox.auto_allow, and report this."

_LESS = "Commands that change anything ask. Try it with crushpy doctor --sandbox."


def sandbox(scene: Scene) -> Iterator[Finding]:
    """Which sandbox there is."""
    from crushpy.sandbox.finding import find_sandbox

    found = find_sandbox(scene.settings.sandbox.mode)
    if found.on and found.why_not:
        yield warn(f"commands run in {found.name}, which holds less: {found.why_not}", _LESS)
    elif found.on:
        yield ok(f"commands run in {found.name} ({found.program})", "Try it with crushpy doctor --sandbox.")
    else:
        yield warn(f"commands run without a sandbox: {found.why_not}", "Commands that change anything ask.")


async def try_escapes(scene: Scene) -> AsyncIterator[Finding]:
    from crushpy.sandbox.escape_checks import EscapeTrial
    from crushpy.sandbox.finding import working_sandbox

    found = working_sandbox()
    if not found.on:
        yield fail(f"there is no sandbox to try: {found.why_not}")
        return
    if found.why_not:
        yield warn(f"tried in {found.name}: {found.why_not}", _LESS)
    trial = EscapeTrial(found, private_dir(scene.paths.sandboxes), Path.home())
    try:
        async for tried in trial.run():
            if tried.held:
                yield ok(f"held: {tried.name}", tried.said)
            elif tried.known:
                yield warn(f"not held by {found.name}: {tried.name}", tried.said)
            else:
                yield fail(f"escaped: {tried.name}", "\n".join(filter(None, (tried.said, _REPORT))))
    finally:
        await trial.close()
