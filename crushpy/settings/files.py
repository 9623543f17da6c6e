"""Settings files: where they are, and reading one with errors that name file, line and column."""

import re
import stat
from pathlib import Path
from typing import Any

from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths, project_dir

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_LARGEST = 1_000_000


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
    """The project's own settings, there or not."""
    return project_dir(cwd) / "config.toml"


def exists(file: Path) -> bool:
    """Whether something stands there; what cannot be looked at does not."""
    try:
        return file.exists()
    except OSError:
        return False


def read_text(file: Path) -> str:
    """The file's text; nothing where there is no file."""
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise SettingsError(
                f"{file} is {what}", "Move it away: settings are kept in a file of that name."
            )
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise SettingsError(f"{file} is larger than {_LARGEST} bytes: that cannot be settings")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}: line {line} is not UTF-8", "Save the file as UTF-8.") from error


def parse(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text; `file` is named when it is broken."""
    if not text.strip():
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{file}: brackets are nested too deep") from None
    except ValueError as error:
        raise SettingsError(f"{file}: {_located(str(error), text)}", "Fix the line, or remove it.") from error


def read_table(file: Path) -> dict[str, Any]:
    return parse(read_text(file), file)


def _located(message: str, text: str) -> str:
    """A parser's complaint with the place first: `line 3, column 7: ...`."""
    found = _PLACE.search(message)
    if not found:
        return message
    lines = text.split("\n")
    line, column = found[1] or len(lines), found[2] or len(lines[-1]) + 1
    return f"line {line}, column {column}: {message[: found.start()]}"
