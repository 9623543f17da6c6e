"""Recognises a command that failed because of the sandbox, and says how to ask for more."""

import re

from crushpy.core.access import Privileges

_TAIL = 20_000
"""Characters of the output that are looked at: what failed says so at its end."""
_NETWORK = re.compile(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known"
    r"|nodename nor servname|No address associated with hostname|EAI_AGAIN|ENETUNREACH|ENOTFOUND|getaddrinfo"
    r"|failed to lookup address|dial tcp|Couldn't connect to server|Failed to establish a new connection"
    r"|Could not connect to|Could not resolve|unable to access 'http|Connection refused",
    re.IGNORECASE,
)
_NOT_NEAR = re.compile(
    r"(?:localhost|127\.0\.0\.1|\[::1\])[^\n]{0,200}(?:refused|connect to server)"
    r"|refused[^\n]{0,200}(?:localhost|127\.0\.0\.1)",
    re.IGNORECASE,
)
"""No server on loopback."""
_READ_ONLY = re.compile(r"Read-only file system|EROFS|os error 30", re.IGNORECASE)
_DENIED = re.compile(
    r"Permission denied|Operation not permitted|EACCES|EPERM|Device or resource busy|EBUSY|os error 1\b",
    re.IGNORECASE,
)
_GIT = re.compile(
    r"(?:^|[\s'\"`/])\.git(?:/|['\"`:\s]|$)|\.lock['\"`]?:|could not write (?:config|index)", re.MULTILINE
)


def why_it_failed(output: str, exit_code: int | None, needs: Privileges, *, mounts: bool = True) -> str:
    """What the sandbox kept a command from, and how to ask for it; empty where it was not the sandbox.

    `mounts`: whether it has a file system of its own; otherwise what was not given is refused.
    """
    if exit_code == 0:
        return ""
    output = output[-_TAIL:]
    held = bool(_READ_ONLY.search(output))
    if (held or _DENIED.search(output)) and _GIT.search(output) and not needs.git and mounts:
        return (
            "the sandbox keeps `.git` read-only: call the git command that changes it alone: it is asked for"
        )
    if _NETWORK.search(output) and not needs.network:
        only = f" beyond {', '.join(needs.hosts)}" if needs.hosts else ""
        return (
            f"commands have no network{only} in the sandbox: call again with needs.network, naming the hosts"
        )
    if needs.network and mounts and _NOT_NEAR.search(output):
        return (
            "a command with the whole network reaches the machine's servers, not those of the sandbox: "
            "call again without needs.network, or with needs.network naming hosts"
        )
    if not mounts and _DENIED.search(output):
        return (
            "the sandbox lets commands write in the workspace and in $TMPDIR alone (not in /tmp), and read "
            "no secrets: use $TMPDIR, or call again with needs.write, naming the folder"
        )
    if held:
        return (
            "the sandbox lets commands write in the workspace and in /tmp alone: "
            "call again with needs.write, naming the folder"
        )
    return ""
