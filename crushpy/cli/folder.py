"""Where to work: the folder that was named, or the current one."""

from pathlib import Path

from crushpy.core.errors import UsageError


def working_folder(cwd: str = "") -> Path:
    if cwd:
        folder = Path(cwd).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--cwd {cwd}: there is no such folder.")
        return folder
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            "The current folder no longer exists.", "Change to another one (cd), or name one with --cwd."
        ) from error
