"""Paths as a person reads them: relative to the project, and `~` for a home folder."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

_ENDS = r"(?![\w-]|\.\w)"
_HOMES = re.compile(r"/(?:home|Users)/[^/]+|/root(?=/|$)")
"""Of other machines: the folder of a conversation may be theirs."""


def path_shortener(folders: Iterable[str]) -> Callable[[str], str]:
    """Returns what makes the paths in a text relative to these folders, or to a home folder."""
    known = {folder.rstrip("/") for folder in folders} - {""}
    homes = {str(Path.home())} | {found[0] for folder in known if (found := _HOMES.match(folder))}
    projects = _any_of(known - homes, r"(/(?=[\w.@+-]))?")
    home = _any_of(homes - {"/"}, "")

    def shorten(text: str) -> str:
        if "/" not in text:
            return text
        return home.sub("~", projects.sub(lambda found: "" if found[1] else ".", text))

    return shorten


def _any_of(folders: Iterable[str], rest: str) -> re.Pattern[str]:
    names = sorted(map(re.escape, folders), key=len, reverse=True)
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(names) or '(?!)'}){_ENDS}{rest}")
