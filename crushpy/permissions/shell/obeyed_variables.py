"""Which environment variables make another program out of a harmless command."""

import re

from crushpy.permissions.shell.ast import Assignment

_OBEYED = re.compile(
    r".*PATH|.*PAGER|.*EDITOR|.*BROWSER|.*SHELL|.*_?OPTS?|.*OPTIONS|.*FLAGS|.*WRAPPER|.*_COMMAND|.*_PROXY|.*_proxy"
    r"|.*ASKPASS|PYTEST_.*|.*PLUGINS?|.*_CONFIG.*|.*_HOME|HOME|LD_.*|DYLD_.*|GIT_.*|BASH.*|SHELLOPTS|ENV|IFS|PS\d|PROMPT_COMMAND"
    r"|CC|CXX|CPP|LD|AR|AS|LESS.*|MAN.*|PYTHON.*|PERL.*|RUBY.*|NODE_OPTIONS|JAVA.*|JDK_.*|npm_.*|NPM_.*|PIP_.*"
    r"|UV_.*|CARGO.*|RUST.*|GO[A-Z]+|SSH_.*|TAR_OPTIONS|RIPGREP_.*|GREP_.*|GZIP|ZIPOPT|MAKE.*|DOCKER_.*|KUBECONFIG"
    r"|VIRTUAL_ENV|DISPLAY|TMPDIR|OPENSSL_.*|PGSERVICE.*|TERMINFO.*|GCONV_PATH|NLSPATH|HISTFILE|CDPATH"
)
_HARMLESS = re.compile(
    r"PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER)|RUST_(?:BACKTRACE|LOG)"
    r"|GIT_(?:TERMINAL_PROMPT|OPTIONAL_LOCKS)|CARGO_TERM_COLOR|GO(?:OS|ARCH|MAXPROCS)"
)


def is_obeyed(assignment: Assignment) -> bool:
    """True where the variable can decide what is executed."""
    name, value = assignment.name, assignment.value
    if name.endswith("PAGER") and value in ("", "cat"):
        return False
    if name.endswith("EDITOR") and value in ("true", ":"):
        return False
    return bool(_OBEYED.fullmatch(name)) and not _HARMLESS.fullmatch(name)
