"""Which file the setting `database_url` names."""

from pathlib import Path

from crushpy.errors import SettingsError

_SCHEMES = ("sqlite:///", "sqlite+pysqlite:///")


def database_file(default: Path, url: str) -> Path:
    """The file of a SQLite URL, or `default` where there is no URL. Relative ones lie beside `default`."""
    if not url:
        return default
    scheme = url.partition(":")[0]  # all that may be shown: the rest can hold a password
    for start in _SCHEMES:
        if url.startswith(start):
            name = url.removeprefix(start)
            break
    else:
        raise SettingsError(
            f"database_url: {scheme!r} is not supported; crushpy stores in SQLite only",
            "Write it as sqlite:////absolute/path/crushpy.db, or remove it to use the default file.",
        )
    if not name or name == ":memory:" or "?" in name:
        raise SettingsError(
            f"database_url: {url!r} must name a file, without options",
            "Write it as sqlite:////absolute/path/crushpy.db, or remove it to use the default file.",
        )
    return default.parent / Path(name).expanduser()
