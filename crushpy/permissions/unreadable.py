"""What of a folder that may be searched may not be read: by rules for single files, or as secret."""

import os
from collections.abc import Callable
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.path_rules import TouchedPath, allows, crushpy_folders, forbids, speaks_of
from crushpy.permissions.rules import RuleSet
from crushpy.sandbox.hidden_paths import holds_variables, secrets


def unreadable_below(
    tool: str, place: Path, real: Path, rules: RuleSet, workspace: Path, *, yolo: bool
) -> Callable[[str], bool] | None:
    """Which files of the folder `real`, which was called `place`, are not for `tool`; None where all are.

    A rule that speaks of the folder itself was obeyed when the search was judged.
    """
    reading = Access(tool, "path", str(real))
    folder = TouchedPath(str(place), workspace)
    asked = () if yolo else (rule for rule in rules.ask if not forbids(rule, reading, folder))
    spoken = [rule for rule in (*rules.deny, *asked) if speaks_of(rule, reading)]
    hidden = secret_places_in(real)
    # What was answered for a folder elsewhere was not meant for the passwords in it; a rule is.
    outside = not folder.inside and not any(allows(rule, reading, folder) for rule in rules.allow)
    if not spoken and not hidden and not outside:
        return None

    def is_left_out(path: str) -> bool:
        found = str(real / path)
        if any(_is_in(found, secret) for secret in hidden) or (outside and holds_variables(Path(path).name)):
            return True
        targets = [TouchedPath(each, workspace) for each in {found, str(place / path)}]
        return any(forbids(rule, reading, target) for rule in spoken for target in targets)

    return is_left_out


def secret_places_in(folder: Path) -> list[str]:
    """The usual places of secrets in a folder, and what is crushpy's own; none for one that lies in them."""
    around = str(folder)
    places = (*secrets(Path.home()), *map(str, crushpy_folders()))
    return [place for place in places if _is_in(place, around) and place != around]


def is_secret(real: Path, workspace: Path) -> bool:
    """Whether a path is one of the usual places of secrets, in a workspace that holds the home folder."""
    home = os.path.realpath(Path.home())
    return _is_in(home, str(workspace)) and any(_is_in(str(real), place) for place in secrets(Path(home)))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
