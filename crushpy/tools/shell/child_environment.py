"""The environment of commands: what programs need, and no secrets."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from crushpy.core.own_code import is_in_folder
from crushpy.util.lazy_pattern import lazy_pattern

# Names and prefixes instead of one pattern, which would take longer to compile than the rest to import.
# fmt: off
_PASSED_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "LANG", "LANGUAGE", "TZ",
        "COLORTERM", "TMPDIR", "TMP", "TEMP", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI",
        "DEBUG", "MAKEFLAGS", "NODE_ENV", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME",
        "XDG_STATE_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "XDG_RUNTIME_DIR", "VIRTUAL_ENV",
        "VOLTA_HOME", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "PNPM_HOME", "BUN_INSTALL", "JAVA_HOME",
        "JDK_HOME", "M2_HOME", "SDKMAN_DIR", "SDKROOT", "CC", "CXX", "CPP", "LD", "AR",
        "LIBRARY_PATH", "LD_LIBRARY_PATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
        "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
        "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "MANPATH", "INFOPATH",
        "GIT_CONFIG_COUNT", "SOURCE_DATE_EPOCH", "OMP_NUM_THREADS", "CLICOLOR", "CRUSHPY", "PYENV",
        "TERMINFO",
    }
)
_PASSED_PREFIXES = (
    "LC_", "CLICOLOR", "CRUSHPY", "CONDA_", "MAMBA_", "PYENV", "PYTHON", "PIP_", "UV_",
    "POETRY_", "PDM_", "HATCH_", "TOX_", "NVM_", "FNM_", "NPM_CONFIG_", "npm_config_",
    "COREPACK_", "DENO_", "CARGO_", "RUSTUP_", "RUST", "GRADLE_", "MAVEN_", "ANDROID_", "GEM_",
    "BUNDLE_", "RBENV_", "RUBY", "DOTNET_", "NIX_", "ASDF_", "MISE_", "DYLD_", "PKG_CONFIG_",
    "CMAKE_", "SSL_CERT_", "GIT_AUTHOR_", "GIT_COMMITTER_", "TERMINFO", "HOMEBREW_", "CUDA_",
)
"""At least one more letter, digit or underscore follows."""
# fmt: on
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
    if name in _PASSED_NAMES or _PASSED_PATTERNS.fullmatch(name):
        return True
    longer = name.startswith(_PASSED_PREFIXES) and name not in _PASSED_PREFIXES
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
