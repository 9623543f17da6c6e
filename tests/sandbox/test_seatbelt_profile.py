"""The profile for macOS, as text: the last rule that fits a place holds there."""

import re
from pathlib import Path

import pytest
from confined import bash

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox
from crushpy.sandbox.mounts import Mount, seatbelt_profile, view
from crushpy.tools.base import CallContext, Workspace
from crushpy.tools.shell.jobs import Jobs

RULE = re.compile(r'\((allow|deny) ([a-z*\- ]+?)(?: \((subpath|literal) "(.*)"\))?\)')
MOUNTS = (
    Mount("/u/me/.ssh", "hide"),
    Mount("/u/me/.crushpy", "hide"),
    Mount("/scratch", "write", "/u/me/.crushpy/one/tmp"),
    Mount('/u/me/my "wörk"', "write"),
    Mount('/u/me/my "wörk"/.git', "read"),
)


def verdict(profile: str, deed: str, path: str) -> str:
    """What the profile says, read as macOS reads it."""
    said = ""
    for kind, describe_call, how, quoted in RULE.findall(profile):
        place = quoted.replace('\\"', '"')
        fits = not how or path == place or (how == "subpath" and path.startswith(f"{place}/"))
        if fits and (deed in describe_call.split() or describe_call == "default"):
            said = kind
    return said


@pytest.mark.parametrize(
    ("deed", "path", "expected"),
    [
        ("file-write*", "/etc/hosts", "deny"),
        ("file-read*", "/etc/hosts", "allow"),
        ("file-write*", "/dev/null", "allow"),
        ("file-read*", "/u/me/.ssh/id_rsa", "deny"),
        ("file-read*", "/u/me/.crushpy/database", "deny"),
        ("file-write*", "/u/me/.crushpy/one/tmp/x", "allow"),
        ("file-write*", "/scratch/x", "deny"),
        ("file-write*", '/u/me/my "wörk"/x', "allow"),
        ("file-write*", '/u/me/my "wörk"/.git', "deny"),
        ("file-write*", '/u/me/my "wörk"/.git/hooks/x', "deny"),
        ("file-read*", '/u/me/my "wörk"/.git/config', "allow"),
    ],
)
def test_the_last_rule_that_fits_is_the_one_meant(deed: str, path: str, expected: str) -> None:
    assert verdict(seatbelt_profile(view(MOUNTS, "/empty"), network=False), deed, path) == expected


def test_the_network_is_denied_unless_it_was_granted() -> None:
    shown = view(MOUNTS, "/empty")
    assert "(deny network*)" in seatbelt_profile(shown, network=False)
    assert "network" not in seatbelt_profile(shown, network=True)


def test_rules_name_real_paths(tmp_path: Path) -> None:
    """macOS compares the real path: /private/tmp for /tmp."""
    (tmp_path / "private/tmp").mkdir(parents=True)
    (tmp_path / "tmp").symlink_to(tmp_path / "private/tmp")
    profile = seatbelt_profile(view([Mount(f"{tmp_path}/tmp", "write")], "/empty"), network=False)
    assert verdict(profile, "file-write*", f"{tmp_path}/private/tmp/x") == "allow"
    assert f'"{tmp_path}/tmp"' not in profile


async def test_commands_are_started_under_the_profile(tmp_path: Path) -> None:
    """A program that notes its profile stands for `sandbox-exec`."""
    program = tmp_path / "sandbox-exec"
    program.write_text(f'#!/bin/sh\n[ "$1" = -f ] && cp "$2" {tmp_path}/seen && shift 2 && exec "$@"\n')
    program.chmod(0o755)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    config = SandboxConfig(
        workspace, Path.home(), (tmp_path / "own",), tmp_path / "outputs", tmp_path / "aside"
    )
    sandbox = Sandbox("sandbox-exec", program=str(program))
    jobs = Jobs((), lambda: confine_in(sandbox, config, tmp_path / "own" / "private"))
    context = CallContext(Workspace(workspace, tmp_path / "outputs", jobs))
    try:
        assert (await bash(context, 'echo "$TMPDIR"', Privileges())).text == str(tmp_path / "own/private/tmp")
    finally:
        await jobs.close()
    seen = (tmp_path / "seen").read_text()
    assert verdict(seen, "file-write*", str(workspace / "x")) == "allow"
    assert verdict(seen, "file-write*", str(tmp_path / "own/private/tmp/x")) == "allow"
    assert verdict(seen, "file-read*", str(tmp_path / "own/secret")) == "deny"
