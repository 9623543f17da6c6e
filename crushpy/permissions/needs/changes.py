"""What a command of the sandbox would change: in the workspace, in folders of its own, or elsewhere."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.permissions.decide_path import decide_path
from crushpy.permissions.decision import Decision
from crushpy.permissions.needs.written_words import WrittenWord
from crushpy.permissions.path_rules import TouchedPath, is_guarded
from crushpy.permissions.plain_reading import named_paths
from crushpy.permissions.rules import WRITE, RuleSet
from crushpy.permissions.shell.ast import word_set

_MADE_ANEW = word_set(
    "build dist target node_modules __pycache__ .pytest_cache .mypy_cache .ruff_cache .tox .nox .cache .eggs"
    " htmlcov coverage .coverage .next .nuxt .turbo .parcel-cache .gradle .venv venv out tmp .tmp DerivedData"
)
"""Folders of what a build makes: nobody's work is lost with them."""
_MADE_ANEW_ENDS = (".pyc", ".o", ".obj", ".class", ".log", ".tmp", ".egg-info", ".so", ".a", ".swp", "~")
_STEERS = word_set(".git .crushpy .vscode .idea .envrc .husky .githooks")
"""What is written there is executed by others later."""
_PRIVATE = tuple({os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", tempfile.gettempdir())})  # noqa: S108
"""Every conversation has its own."""


class Changes:
    """Judges what commands change. `folders`: where the line may run; none where that is not known."""

    def __init__(self, folders: Sequence[Path], rules: RuleSet, workspace: Path) -> None:
        self._folders = folders
        self._rules = rules
        self._workspace = workspace

    def word(self, written: WrittenWord, shown: str) -> tuple[list[Decision], Privileges]:
        """What becomes of one word of `shown`, and what it needs outside the workspace."""
        word = written.word
        paths: list[str] = []
        for folder in self._folders:
            named = None if word.kind == "unknown" else named_paths(word, folder)
            if named is None:
                break
            paths.extend(named)
        else:
            if self._folders:
                return self._paths(paths, written)
        if written.creates:
            return [], Privileges()
        return [
            Decision("ask", f"what `{shown[:60]}` changes cannot be judged: {word.text[:60]}")
        ], Privileges()

    def _paths(self, paths: Sequence[str], written: WrittenWord) -> tuple[list[Decision], Privileges]:
        parts: list[Decision] = []
        needs = Privileges()
        for path in dict.fromkeys(paths):
            inner = [f"{path}/{name}" for name in written.into] if Path(path).is_dir() else [path]
            for each in inner if written.into else [path]:
                decided, needed = self.path(each, creates=written.creates)
                parts += decided
                needs |= needed
        return parts, needs

    def path(self, path: str, *, creates: bool = False) -> tuple[list[Decision], Privileges]:
        """What becomes of a change to this path, and what it needs outside the workspace."""
        target = TouchedPath(path, self._workspace)
        if not target.inside:
            if any(target.real.is_relative_to(folder) for folder in _PRIVATE):
                return [], Privileges()
            folder = target.real if target.real.is_dir() and not creates else _existing(target.real.parent)
            return [], Privileges(write=(str(folder),))
        decided = decide_path(
            Access(WRITE, "path", str(target.written), writes=True), self._rules, self._workspace
        )
        by_rule = decided.verdict != "ask" or not decided.suggested
        lost = os.path.lexists(target.written) and not creates and not _is_made_anew(target)
        steers = is_guarded(target) or bool(set(target.parts) & _STEERS)
        return ([decided] if by_rule or lost or steers else []), Privileges()


def _existing(folder: Path) -> Path:
    """The nearest folder that is there."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), folder)


def _is_made_anew(target: TouchedPath) -> bool:
    inside = target.real.relative_to(target.root).parts
    return bool(set(inside) & _MADE_ANEW) or target.real.name.endswith(_MADE_ANEW_ENDS)
