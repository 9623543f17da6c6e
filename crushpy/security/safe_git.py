"""How crushpy itself runs git: no program that a repository's settings name runs, and nothing is written.

A repository can choose hooks, a file system monitor, filters, pagers, external diffs, signature programs and
transports. The user was not asked about those programs, so they are turned off.
"""

import os
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from crushpy.security.programs import find_program, safe_path

_OFF = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("core.alternateRefsCommand", ""),
    ("core.attributesFile", os.devnull),
    ("diff.external", ""),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
)
_FILTER_KEYS = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
_PASSED_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME")
_FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
_GIT_TIMEOUT_S = 30.0


def git_command(folder: Path, *words: str) -> list[str]:
    """A call of git in `folder`. Start it with `git_environment`."""
    git = find_program("git", folder) or "git"
    return [git, "--no-pager", "--no-optional-locks", "-C", str(folder), *words]


def git_environment(filters: Sequence[str] = ()) -> dict[str, str]:
    """The environment of such a call. `filters`: the known filters, if the call reads file contents."""
    settings = [*_OFF, *((f"filter.{name}.{key}", value) for name in filters for key, value in _FILTER_KEYS)]
    variables = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    variables |= {"PATH": safe_path(), "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    variables["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def git_output(
    folder: Path,
    *words: str,
    text: bytes = b"",
    filters: Sequence[str] = (),
    timeout_s: float = _GIT_TIMEOUT_S,
) -> bytes | None:
    """What git prints if it gets `text` as its input; None if it fails. `filters`: as for
    `git_environment`."""
    try:
        return subprocess.run(
            git_command(folder, *words),
            input=text,
            capture_output=True,
            env=git_environment(filters),
            timeout=timeout_s,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


@lru_cache(maxsize=512)
def parse_settings(text: bytes) -> tuple[tuple[str, str], ...] | None:
    """All settings in the text of a file, as git parses them, which runs no program; None if it cannot."""
    printed = git_output(Path("/"), "config", "--file", "-", "--null", "--no-includes", "--list", text=text)
    if printed is None:
        return None
    records = (record.partition("\n") for record in os.fsdecode(printed).split("\0") if record)
    return tuple((name, value) for name, _, value in records)


def known_filters(folder: Path) -> tuple[str, ...]:
    """The filter programs that a repository or its user configured; none outside a repository."""
    keys = (git_output(folder, *_FILTERS) or b"").split(b"\0")
    names = (os.fsdecode(key).removeprefix("filter.").rpartition(".")[0] for key in keys)
    return tuple(dict.fromkeys(name for name in names if name))
