"""What commands learn from our environment: what programs need to work, and no secrets."""

import ctypes
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

_PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|HOSTNAME|LANG|LANGUAGE|LC_\w+|TZ|COLORTERM|TMPDIR|TMP|TEMP|COLUMNS|LINES"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR\w*|CI|DEBUG|MAKEFLAGS|NODE_ENV|CRUSHPY\w*"
    r"|XDG_(?:CONFIG|DATA|CACHE|STATE)_HOME|XDG_(?:CONFIG|DATA)_DIRS|XDG_RUNTIME_DIR"
    r"|VIRTUAL_ENV|CONDA_\w+|MAMBA_\w+|PYENV\w*|PYTHON\w+|PIP_\w+|UV_\w+|POETRY_\w+|PDM_\w+|HATCH_\w+|TOX_\w+"
    r"|NVM_\w+|VOLTA_HOME|FNM_\w+|NODE_PATH|NODE_EXTRA_CA_CERTS|NPM_CONFIG_\w+|npm_config_\w+|PNPM_HOME|BUN_INSTALL"
    r"|COREPACK_\w+|DENO_\w+|CARGO_\w+|RUSTUP_\w+|RUST\w+|GO[A-Z]+|JAVA_HOME|JDK_HOME|GRADLE_\w+|MAVEN_\w+|M2_HOME"
    r"|ANDROID_\w+|SDKMAN_DIR|GEM_\w+|BUNDLE_\w+|RBENV_\w+|RUBY\w+|DOTNET_\w+|NIX_\w+|ASDF_\w+|MISE_\w+|SDKROOT"
    r"|CC|CXX|CPP|LD|AR|[A-Z]*FLAGS|LIBRARY_PATH|LD_LIBRARY_PATH|DYLD_\w+|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH"
    r"|PKG_CONFIG_\w+|CMAKE_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_(?:AUTHOR|COMMITTER)_\w+"
    r"|(?:HTTP|HTTPS|ALL|NO)_PROXY|(?:http|https|all|no)_proxy|TERMINFO\w*|MANPATH|INFOPATH|HOMEBREW_\w+"
    r"|GIT_CONFIG_(?:COUNT|KEY_\d+|VALUE_\d+)|SOURCE_DATE_EPOCH|OMP_NUM_THREADS|CUDA_\w+"
)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASS(?:WORD|WD|PHRASE)?|PWD|CREDENTIALS?|AUTH|COOKIE|PAT|DSN)(?:_|$)",
    re.IGNORECASE,
)
_WITH_PASSWORD = re.compile(r"://[^/\s@]{1,200}@")


def child_environment(environ: Mapping[str, str], named: Sequence[str] = ()) -> dict[str, str]:
    """The part of `environ` that commands get. `named`: further names, or patterns of them.

    What looks like a secret is only passed on where it is named in full.
    """
    return {name: value for name, value in environ.items() if name in named or _may_see(name, value, named)}


def _may_see(name: str, value: str, named: Sequence[str]) -> bool:
    if name != "PWD" and (_SECRET_NAME.search(name) or _WITH_PASSWORD.search(value)):
        return False
    return bool(_PASSED_ON.fullmatch(name)) or any(fnmatchcase(name, pattern) for pattern in named)


# --- what the system shows of us ---------------------------------------------------------------------------

_ENVIRONMENT_START = 47
"""Place of `env_start` behind the name in /proc/self/stat; `env_end` comes next."""
_PR_SET_DUMPABLE = 4


def hide_environment(shown: Mapping[str, str]) -> None:
    """Takes all but `shown` out of /proc/PID/environ, where every child could read what it was not given.

    Our own variables stay: Python and the C library keep copies elsewhere. Without /proc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    for name, value in os.environ.items():
        os.putenv(name, value)  # from here on the C library has a copy of its own
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b") ")[2].split()
        start, end = (int(fields[_ENVIRONMENT_START + step]) for step in (0, 1))
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            block = memory.read(end - start)
            memory.seek(start)
            memory.write(_blanked(block, shown))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _blanked(block: bytes, shown: Mapping[str, str]) -> bytes:
    entries = block.split(b"\0")
    kept = (each if os.fsdecode(each.partition(b"=")[0]) in shown else bytes(len(each)) for each in entries)
    return b"\0".join(kept)
