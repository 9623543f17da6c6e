"""Starts the chat. Its usual flags are read here, without Typer: importing that is felt at every start."""

import sys
from typing import NamedTuple

from crushpy.errors import UsageError

METHODS = ("auto", "llm")
SWITCHES = {"-c": "resume_latest", "--continue": "resume_latest", "--fork": "fork", "--yolo": "yolo"}
VALUES = {
    "-s": "session",
    "--session": "session",
    "-m": "model",
    "--model": "model",
    "--compaction": "compaction",
    "--cwd": "cwd",
}


class Asked(NamedTuple):
    """How the chat is to start."""

    resume_latest: bool = False
    session: str = ""
    fork: bool = False
    model: str = ""
    compaction: str = ""
    yolo: bool = False
    cwd: str = ""


def plainly_asked(argv: list[str]) -> Asked | None:
    """What `argv` asks for, or None if it holds more than flags of the chat: then Typer has the word."""
    asked: dict[str, str | bool] = {}
    words = iter(argv)
    for word in words:
        if word in SWITCHES:
            asked[SWITCHES[word]] = True
            continue
        value = next(words, "")
        if word not in VALUES or not value or value.startswith("-"):
            return None
        asked[VALUES[word]] = value
    return Asked()._replace(**asked) if asked.get("compaction", "auto") in METHODS else None


def start(asked: Asked) -> int:
    """Runs the chat until the user leaves; the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal.", 'Without one: crushpy run "what to do".')
    from crushpy.cli.folder import working_folder
    from crushpy.tui import Options, run

    return run(Options(**asked._replace(cwd=str(working_folder(asked.cwd)))._asdict()))
