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
    r"LANG|LANGUAGE|LC_\w+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|CI|DEBIAN_FRONTEND|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER)|RUST_(?:BACKTRACE|LOG)"
    r"|GIT_(?:TERMINAL_PROMPT|OPTIONAL_LOCKS)|CARGO_TERM_COLOR|GO(?:OS|ARCH|MAXPROCS)"
)


_CALCULATED = re.compile(r"S?RANDOM|SECONDS|HISTCMD|OPTIND|LINENO|EPOCH\w+|E?UID|PPID|BASHPID")
"""Numbers to bash: it calculates what is put into them, and that can run commands."""
_PLAIN_VALUE = re.compile(r"[\w.,:@%+/-]*")


def is_obeyed(assignment: Assignment) -> bool:
    """True if the variable can decide what is executed, whichever program it is."""
    name, value = assignment.name, assignment.value
    if _CALCULATED.fullmatch(name):
        return value is None or not value.isdecimal()
    if name.endswith("PAGER") and value in ("", "cat"):
        return False
    if name.endswith("EDITOR") and value in ("true", ":"):
        return False
    return bool(_OBEYED.fullmatch(name)) and not _HARMLESS.fullmatch(name)


def may_be_obeyed(assignment: Assignment) -> bool:
    """True if it could decide that for a program that obeys any variable, as make does."""
    if assignment.value is not None and _PLAIN_VALUE.fullmatch(assignment.value):
        pager = assignment.name.endswith(("PAGER", "EDITOR")) and not is_obeyed(assignment)
        return not pager and not _HARMLESS.fullmatch(assignment.name)
    return True
