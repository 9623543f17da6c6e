"""Settings files: their paths, permissions, and reading with errors that name file, line and column."""

import hashlib
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.core.errors import SettingsError, UsageError
from crushpy.core.paths import Paths, project_dir, project_root
from crushpy.util.posix import user_name

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
MAX_FILE_BYTES = 1_000_000


def user_files(paths: Paths) -> tuple[Path, Path]:
    """The user's `config.toml` and `state.toml`."""
    try:
        return paths.config_file, paths.state_file
    except RuntimeError as error:
        raise SettingsError(
            f"no home folder found: {error}",
            "Set HOME, or set CRUSHPY_HOME to the folder where crushpy should keep its files.",
        ) from error


def project_file(cwd: Path) -> Path:
    """The project's settings file, existing or not."""
    return project_dir(cwd) / "config.toml"


def project_rules_file(paths: Paths, cwd: Path) -> Path:
    """The user's rules for the repository around `cwd`, existing or not; all its worktrees have the same."""
    real = repository_path(cwd)
    key = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return paths.project_rules / f"{re.sub(r'[^A-Za-z0-9._-]', '_', real.name)[:40]}-{key}.toml"


def repository_path(cwd: Path) -> Path:
    """The real path of the repository around `cwd`, of a worktree that of its main one; else the project's.

    A `.git` file may come with an archive and name any repository: it counts only if that one names it too.
    """
    for folder in (cwd, *cwd.parents):
        entry = folder / ".git"
        if not os.path.exists(entry):  # noqa: PTH110  # does not raise if it cannot be accessed
            continue
        real = Path(os.path.realpath(folder))
        with suppress(OSError, ValueError):
            if entry.is_file():
                own = Path(os.path.realpath(folder / entry.read_text().removeprefix("gitdir:").strip()))
                back = Path(os.path.realpath((own / "gitdir").read_text().strip()))
                if own.parent.name == "worktrees" and back == real / ".git":
                    return own.parent.parent.parent
        return real
    return Path(os.path.realpath(project_root(cwd)))


def read_text(file: Path) -> str:
    """The file's text; empty if there is no file."""
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise SettingsError(
                f"{file} is {what}", "Move it away: settings are stored in a file of that name."
            )
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(f"{file} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}: line {line} is not UTF-8", "Save the file as UTF-8.") from error


def parse(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text; errors name `file`."""
    if not text.strip():
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{file}: brackets are nested too deeply") from None
    except ValueError as error:
        raise SettingsError(f"{file}: {_located(str(error), text)}", "Fix the line, or remove it.") from error


def _located(message: str, text: str) -> str:
    """A parser's message with the position first: `line 3, column 7: ...`."""
    found = _PLACE.search(message)
    if not found:
        return message
    lines = text.split("\n")
    line, column = found[1] or len(lines), found[2] or len(lines[-1]) + 1
    return f"line {line}, column {column}: {message[: found.start()]}"


def guard_home(paths: Paths) -> list[str]:
    """Makes crushpy's folders private and returns notices. Raises UsageError if another user owns one."""
    notices: list[str] = []
    if sys.platform == "win32":  # no such owners and modes there
        return notices
    for folder in dict.fromkeys((paths.config_dir, paths.data_dir)):
        try:
            found = folder.stat()
        except OSError:
            continue  # missing, or reported when it is opened
        if found.st_uid != os.geteuid():
            raise UsageError(
                f"{folder} belongs to {user_name(found.st_uid)}, not to you ({user_name(os.geteuid())}).",
                "Set CRUSHPY_HOME to a folder of your own, or change the owner with chown.",
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o077:
            try:
                folder.chmod(0o700)
                notices.append(f"{folder} was accessible to other users; it is private now.")
            except OSError as error:
                notices.append(
                    f"{folder} is accessible to other users and cannot be made private: {error.strerror}."
                )
    return notices
