"""Tries the escapes of `crushpy doctor --sandbox` in each sandbox, as a Markdown table.

    python -m benchmarks.sandbox              bubblewrap and Landlock, as crushpy uses them
    python -m benchmarks.sandbox --against    also the sandboxes of Codex and Claude Code, if on the PATH

They come from npm: `@openai/codex` (`codex`) and `@anthropic-ai/sandbox-runtime` (`srt`, which needs socat
and ripgrep). Each runs with its own defaults for a writable workspace.
"""

import argparse
import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crushpy.sandbox.finding import Sandbox, find_sandbox, working_landlock
from crushpy.tools.shell.escape_checks import ESCAPES, EscapeTrial, attempt_script

SECRETS = (
    ".ssh/id_rsa",
    ".netrc",
    ".aws/credentials",
    ".codex/auth.json",
    ".claude.json",
    ".bash_history",
    ".npmrc",
)
CACHES = (".cache/uv", ".cache/pre-commit")
TIMEOUT_S = 60
SRT_SETTINGS: dict[str, dict[str, list[str]]] = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
}
Result = dict[tuple[str, str], bool]
"""Whether each attempt was held, by kind and name."""


@contextmanager
def scratch_home() -> Generator[Path]:
    """A home folder with secrets and caches; not in /tmp, which sandboxes treat differently."""
    home = Path(tempfile.mkdtemp(prefix="sandbox-benchmark-", dir=Path.home()))
    for name in SECRETS:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("a secret\n")
    for name in CACHES:
        (home / name).mkdir(parents=True)
    before = os.environ.get("HOME", "")
    os.environ["HOME"] = str(home)
    try:
        yield home
    finally:
        os.environ["HOME"] = before
        shutil.rmtree(home)


async def try_own(name: str) -> Result:
    """The attempts in crushpy's own sandbox of this name."""
    sandbox = find_sandbox() if name == "bubblewrap" else working_landlock()
    if sandbox.name != name:
        return {}
    with scratch_home() as home:
        (home / "own").mkdir(mode=0o700)
        trial = EscapeTrial(sandbox, home / "own", home)
        try:
            tried = [each async for each in trial.run() if not each.said.startswith("not tried")]
            return {(each.kind, each.name): each.held for each in tried}
        finally:
            await trial.close()


def try_other(name: str) -> Result:
    """The attempts in another program's sandbox."""
    if not shutil.which(name):
        return {}
    results: Result = {}
    with scratch_home() as home:
        settings = home / "srt.json"
        settings.write_text(json.dumps(SRT_SETTINGS))
        attempts = [(kind, *each) for kind, tried in ESCAPES.items() for each in tried.items()]
        for kind, attempt, action in attempts:
            # A new one each time: what an attempt leaves is not put back.
            trial = EscapeTrial(Sandbox("none"), home / "project", home)
            code = attempt_script(action)
            script = [sys.executable, "-I", "-c", code.format(**trial.values)]
            if name == "codex":
                command = ["codex", "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", *script]
            else:
                command = ["srt", "-s", str(settings), "-c", shlex.join(script)]
            before = trial.repository()
            done = subprocess.run(
                command, cwd=trial.workspace, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            results[kind, attempt] = trial.is_held(kind, code, done.stdout, before)
            if "ESCAPED" not in done.stdout and not done.stdout.strip():
                print(f"{name}: {attempt}: {done.stderr.strip()[-200:]}", file=sys.stderr)
            asyncio.run(trial.close())
    return results


def print_table(columns: dict[str, Result]) -> None:
    rows = dict.fromkeys(row for result in columns.values() for row in result)
    print(f"| protection | attempt | {' | '.join(columns)} |")
    print(f"| --- | --- |{' --- |' * len(columns)}")
    for kind, attempt in rows:
        cells = [result.get((kind, attempt)) for result in columns.values()]
        shown = ["not tried" if held is None else "held" if held else "**escaped**" for held in cells]
        print(f"| {kind} | {attempt} | {' | '.join(shown)} |")
    held = [f"{sum(result.values())} of {len(result)}" for result in columns.values()]
    print(f"| | **held** | {' | '.join(held)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Tries known escapes in each sandbox.")
    parser.add_argument("--against", action="store_true", help="Also try Codex's and Claude Code's.")
    against = parser.parse_args().against
    columns = {f"crushpy ({name})": asyncio.run(try_own(name)) for name in ("bubblewrap", "landlock")}
    if against:
        columns |= {"Codex": try_other("codex"), "Claude Code (srt)": try_other("srt")}
    for name in [name for name, result in columns.items() if not result]:
        print(f"{name} is not available here", file=sys.stderr)
        del columns[name]
    print_table(columns)


if __name__ == "__main__":
    main()
