"""Checks of the sandbox: the ways out of it are tried, and what held is said."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from crushpy.cli.checkup.finding import Finding, Scene, fail, ok, warn
from crushpy.paths import private_dir

_REPORT = "A command could get out of the sandbox here. Turn off sandbox.auto_allow, and report this."


def sandbox(scene: Scene) -> Iterator[Finding]:
    """Which sandbox there is."""
    from crushpy.sandbox.finding import find_sandbox

    found = find_sandbox(scene.settings.sandbox.mode)
    if found.on:
        yield ok(f"commands run in {found.name} ({found.program})", "Try it with crushpy doctor --sandbox.")
    else:
        yield warn(f"commands run without a sandbox: {found.why_not}", "Commands that change anything ask.")


async def try_escapes(scene: Scene) -> AsyncIterator[Finding]:
    from crushpy.sandbox.escape_trial import EscapeTrial
    from crushpy.sandbox.finding import working_sandbox

    found = working_sandbox()
    if not found.on:
        yield fail(f"there is no sandbox to try: {found.why_not}")
        return
    trial = EscapeTrial(found, private_dir(scene.paths.sandboxes), Path.home())
    try:
        async for tried in trial.run():
            if tried.held:
                yield ok(f"held: {tried.name}", tried.said)
            else:
                yield fail(f"escaped: {tried.name}", "\n".join(filter(None, (tried.said, _REPORT))))
    finally:
        await trial.close()
