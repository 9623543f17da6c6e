"""Explains a call in a paragraph, for a user who is asked about it: what it does, needs, and why it asks."""

import re
from collections.abc import Sequence

from crushpy.core.access import Access
from crushpy.permissions.shell.ast import SimpleCommand
from crushpy.permissions.shell.line_reader import parse_shell

PROGRAMS = {
    "bash": "runs a script",
    "cargo": "builds and tests Rust code; build scripts run",
    "chmod": "changes who may use files",
    "cp": "copies files",
    "curl": "talks to a web server",
    "docker": "starts or changes containers",
    "git": "works with the repository",
    "make": "runs the steps of a Makefile",
    "mkdir": "makes folders",
    "mv": "moves or renames files",
    "npm": "manages JavaScript packages; their scripts run",
    "pip": "installs Python packages; their code runs",
    "pytest": "runs the Python tests",
    "python": "runs a Python program",
    "rm": "deletes files",
    "sed": "edits text",
    "ssh": "runs commands on another machine",
    "sudo": "runs a command as another user, usually root",
    "wget": "downloads files",
}
GIT = {
    "add": "stages changes",
    "checkout": "switches branches or restores files",
    "clean": "deletes untracked files",
    "clone": "copies a repository",
    "commit": "records the staged changes",
    "fetch": "downloads commits",
    "merge": "joins branches",
    "pull": "downloads commits and merges them",
    "push": "sends commits to another repository",
    "rebase": "rewrites commits on top of others",
    "reset": "moves the branch, and may discard changes",
    "stash": "sets changes aside",
}


_VERB = re.compile(r"(^|; )(needs|writes|changes) ")
"""Reasons that begin with what the call does."""


def explain_call(accesses: Sequence[Access], reason: str) -> str:
    """For example "`git push` sends commits to another repository. It asks because ..."."""
    parts = [sentence for access in accesses for sentence in _sentences(access)]
    why = "It asks because " + _VERB.sub(r"\1it \2 ", f"{reason[:1].lower()}{reason[1:]}.") if reason else ""
    return " ".join([*dict.fromkeys(parts), why, "Nothing happens before you answer."])


def _sentences(access: Access) -> list[str]:
    match access.kind:
        case "path":
            return [f"{'Changes' if access.writes else 'Reads'} {access.value}."]
        case "host":
            return [f"Sends a request to {access.value} and reads the answer."]
        case "none":
            return [f"Uses the tool {access.tool}."]
        case "command":
            reading = parse_shell(access.value)
            found = [_explain(command) for command in reading.all_commands]
            found += [
                f"Its output goes to {redirect.target.text}."
                for redirect in reading.redirects
                if redirect.writes and not redirect.target.text.startswith(("/dev/null", "&"))
            ]
            if reading.not_literal:
                found.append("Parts of it are only known when it runs.")
            return found


def _explain(command: SimpleCommand) -> str:
    plain = [word.text for word in command.words[1:] if not word.text.startswith("-")]
    name = command.program
    if name == "git" and plain and plain[0] in GIT:
        return f"`git {plain[0]}` {GIT[plain[0]]}."
    what = PROGRAMS.get(name.rstrip("3"), "runs")
    about = f" ({', '.join(plain[:3])}{', …' if len(plain) > 3 else ''})" if plain else ""
    return f"`{name}` {what}{about}."
