"""The environment of commands: what programs need, and no secrets."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from crushpy.core.own_code import is_in_folder
from crushpy.util.lazy_pattern import lazy_pattern

# Names and prefixes instead of one pattern, which would take longer to compile than the rest to import.
_TABLE = Path(__file__).with_name("passed_variables.toml").read_bytes()
_PASSED = msgspec.toml.decode(_TABLE, type=dict[str, tuple[str, ...]])
_PASSED_PATTERNS = lazy_pattern(r"GO[A-Z]+|[A-Z]*FLAGS|GIT_CONFIG_(?:KEY|VALUE)_\d+")
_SECRET_NAME = lazy_pattern(
    r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASS(?:WORD|WD|PHRASE)?|PWD|CREDENTIALS?|AUTH|COOKIE|PAT|DSN)(?:_|$)",
    re.IGNORECASE,
)
_LOADERS = lazy_pattern(
    r"(?:LD|DYLD)_\w+|GLIBC_TUNABLES|BASH_ENV|ENV|PYTHONSTARTUP|PYTHONHOME|PERL5OPT|RUBYOPT|JAVA_TOOL_OPTIONS"
)
_NODE_LOADERS = lazy_pattern(r"(?:^|\s)(?:-r|--require|--import|--loader|--experimental-loader)\b")
_URL_WITH_PASSWORD = lazy_pattern(r"://[^/\s@]{1,200}@")


def child_environment(environ: Mapping[str, str], named: Sequence[str] = ()) -> dict[str, str]:
    """The part of `environ` that commands get. `named`: additional names, or patterns of names.

    A variable that looks like a secret is passed only if it is named in full.
    """
    return {name: value for name, value in environ.items() if name in named or _is_safe(name, value, named)}


def loads_code(name: str, value: str, root: str) -> bool:
    """Whether a variable of a definition makes programs load code, of the project at `root` for instance."""
    if name == "NODE_OPTIONS":
        return _NODE_LOADERS.search(value) is not None
    if name in ("PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB"):
        places = (os.path.realpath(os.path.join(root, each)) for each in value.split(os.pathsep))  # noqa: PTH118
        return any(is_in_folder(place, os.path.realpath(root)) for place in places)
    return _LOADERS.fullmatch(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name probably holds a secret."""
    return name != "PWD" and _SECRET_NAME.search(name) is not None


def _is_safe(name: str, value: str, named: Sequence[str]) -> bool:
    if is_secret_name(name) or (name != "PWD" and _URL_WITH_PASSWORD.search(value)):
        return False
    if name in _PASSED["names"] or _PASSED_PATTERNS.fullmatch(name):
        return True
    longer = name.startswith(_PASSED["prefixes"]) and name not in _PASSED["prefixes"]
    is_usual = longer and name.replace("_", "a").isalnum()
    return is_usual or any(fnmatchcase(name, pattern) for pattern in named)


# --- our own environment in /proc --------------------------------------------------------------------------

_ENV_START_FIELD = 47
"""Index of `env_start` after the name in /proc/self/stat; `env_end` follows."""
_PR_SET_DUMPABLE = 4


def hide_environment(shown: Mapping[str, str]) -> None:
    """Removes all but `shown` from /proc/PID/environ, where children could read what they were not given.

    Our own variables stay: Python and the C library keep copies elsewhere. Without /proc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    for name, value in os.environ.items():
        os.putenv(name, value)  # from here on the C library has its own copy
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b") ")[2].split()
        start, end = (int(fields[_ENV_START_FIELD + step]) for step in (0, 1))
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            block = memory.read(end - start)
            memory.seek(start)
            names = ((each, os.fsdecode(each.partition(b"=")[0])) for each in block.split(b"\0"))
            memory.write(b"\0".join(each if name in shown else bytes(len(each)) for each, name in names))
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
