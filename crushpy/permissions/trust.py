"""Which projects may bring their own settings and templates: the folders the user said yes to."""

import json
import os
from pathlib import Path
from typing import Any

from crushpy.errors import UsageError
from crushpy.paths import Paths, private_dir


def is_trusted(paths: Paths, root: Path) -> bool:
    return str(_real(root)) in _read(paths)


def trusted(paths: Paths) -> list[Path]:
    """Every folder that is trusted, in order."""
    return [Path(folder) for folder in sorted(_read(paths))]


def trust(paths: Paths, root: Path) -> Path:
    """Trusts a folder. Refused for folders that hold more than one project."""
    folder = _real(root)
    if not folder.is_dir():
        raise UsageError(f"{root}: there is no such folder.")
    if folder == Path(folder.anchor) or folder == _real(Path.home()):
        raise UsageError(
            f"{folder} is too much to trust: everything below it would count.",
            "Trust a single project's folder.",
        )
    _write(paths, _read(paths) | {str(folder)})
    return folder


def untrust(paths: Paths, root: Path) -> bool:
    """Takes it back; False where the folder was not trusted."""
    folders = _read(paths)
    if str(_real(root)) not in folders:
        return False
    _write(paths, folders - {str(_real(root))})
    return True


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder.expanduser()))


def _read(paths: Paths) -> set[str]:
    """What the file says; a file that is broken trusts nothing."""
    try:
        data: Any = json.loads(paths.trust_file.read_text(encoding="utf-8"))
        return {str(folder) for folder in data["trusted"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _write(paths: Paths, folders: set[str]) -> None:
    private_dir(paths.data_dir)
    draft = paths.trust_file.with_suffix(f".{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        json.dump({"trusted": sorted(folders)}, stream, indent=1)
    draft.replace(paths.trust_file)
