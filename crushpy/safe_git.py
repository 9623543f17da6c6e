"""How crushpy itself asks git: nothing that a repository's settings name is run, and nothing is written.

Hooks, a file system monitor, filters, pagers, external diffs, signature programs and transports are programs
that a repository can choose. Nobody was asked about those, so they stay off.
"""

import os
from collections.abc import Sequence
from pathlib import Path

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
_HARMLESS = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME")
FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
"""Lists the settings of filters; `filter_names` reads the answer."""


def git_command(folder: Path, *words: str) -> list[str]:
    """A call of git in `folder`. Start it with `git_environment`."""
    return ["git", "--no-pager", "--no-optional-locks", "-C", str(folder), *words]


def git_environment(filters: Sequence[str] = ()) -> dict[str, str]:
    """The variables of such a call. `filters`: those that are known, where a call looks into files."""
    settings = [*_OFF, *((f"filter.{name}.{key}", value) for name in filters for key, value in _FILTER_KEYS)]
    told = {name: os.environ[name] for name in _HARMLESS if name in os.environ}
    told |= {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        told[f"GIT_CONFIG_KEY_{number}"] = name
        told[f"GIT_CONFIG_VALUE_{number}"] = value
    return told


def filter_names(listed: bytes) -> tuple[str, ...]:
    """The filters in what a call with `FILTERS` printed."""
    names = (os.fsdecode(key).removeprefix("filter.").rpartition(".")[0] for key in listed.split(b"\0"))
    return tuple(dict.fromkeys(name for name in names if name))
