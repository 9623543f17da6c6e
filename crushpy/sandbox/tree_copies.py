"""Copies of files that commands must not change, for a sandbox that cannot make them read-only (Landlock)."""

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import private_dir
from crushpy.sandbox.repository import is_git_folder
from crushpy.security.safe_open import make_folders

_MAX_COPIED_BYTES = 500_000_000
"""Of a larger tree, files are linked: deleted ones are restored, those overwritten in place are not."""

_Signatures = dict[str, tuple[int, ...]]
"""What identifies the content of each file, by path. A command cannot set the status change time."""


class TreeCopies:
    """Restores files and folders from copies that were made before a command."""

    def __init__(self, folder: Path, aside: Path) -> None:
        """`folder`: for the copies, which commands cannot open; `aside`: where changed trees are moved."""
        self._folder = folder
        self._aside = aside
        self._saved: dict[str, tuple[_Signatures, Path]] = {}

    def save(self, places: Iterable[str]) -> list[str]:
        """Copies what changed in `places`; returns messages about what could not be copied."""
        before, self._saved = self._saved, {}
        messages: list[str] = []
        for place in places:
            signatures = dict(_sign(place))
            old, copy = before.pop(place, ({}, self._folder))
            if not signatures:
                continue  # neither a file nor a folder
            if signatures != old:
                try:
                    copy = _copy_tree(place, self._folder / new_id(), signatures, (old, copy))
                except OSError as error:
                    messages.append(f"{place} could not be copied, and is not restored if deleted: {error}")
                    continue
            self._saved[place] = (signatures, copy)
        return messages

    def restore(self, granted: Collection[str], *, only_lost: bool = False) -> dict[str, str]:
        """Puts back what changed, except in `granted`; returns messages by place.

        `only_lost`: only what is missing or no longer usable, since the user may have changed the rest.
        """
        messages: dict[str, str] = {}
        for place, (signatures, copy) in sorted(self._saved.items()):
            if place in granted or any(is_in_folder(place, each) for each in messages):
                continue
            now = dict(_sign(place))
            is_lost = not now or (f"{place}/HEAD" in signatures and not is_git_folder(place))
            is_same = signatures.items() <= now.items() and all(
                path.startswith(f"{place}/objects/") for path in now.keys() - signatures.keys()
            )
            if is_lost or not (is_same or only_lost):
                messages[place] = self._swap(Path(place), copy)
                del self._saved[place]
        return messages

    def _swap(self, place: Path, copy: Path) -> str:
        try:
            with make_folders(place.parent)[0] as folder:
                target = Path(folder.as_cwd(), place.name)
                saved = ""
                if os.path.lexists(target):
                    aside = private_dir(self._aside / new_id()) / place.name
                    shutil.move(target, aside)
                    saved = f". The new version was saved as {aside}"
                shutil.move(copy, target)
        except OSError as error:
            return f"{place} was changed and could not be put back ({error}). A copy is at {copy}"
        return f"{place} was restored: only a command that was granted it may change it{saved}"


def _sign(place: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    try:
        found = os.lstat(place)
        if stat.S_ISDIR(found.st_mode):
            yield place, (found.st_mode,)
            for name in os.listdir(place):  # noqa: PTH208
                yield from _sign(f"{place}/{name}")
        elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            yield place, (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        return


def _copy_tree(place: str, target: Path, signatures: _Signatures, previous: tuple[_Signatures, Path]) -> Path:
    """Copies a tree. Files that did not change are linked to the previous copy, which is then removed."""
    old, old_copy = previous
    is_large = sum(each[2] for each in signatures.values() if len(each) > 1) > _MAX_COPIED_BYTES

    def copy_file(source: str, destination: str) -> None:
        signature = signatures.get(source)
        if signature is None:
            return  # a socket, or newer than the signatures
        if signature == old.get(source):
            Path(destination).hardlink_to(f"{old_copy}{source[len(place) :]}")
        elif is_large and not os.path.islink(source):  # noqa: PTH114
            Path(destination).hardlink_to(source)
        else:
            shutil.copy2(source, destination, follow_symlinks=False)

    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
        shutil.copytree(place, target, symlinks=True, copy_function=copy_file)
    else:
        copy_file(place, str(target))
    if old:
        shutil.rmtree(old_copy, ignore_errors=True)
    return target
