"""The address of a server: what is given to psycopg, and what of it people may see."""

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from crushpy.core.errors import SettingsError

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_SECRET = frozenset({"password", "sslpassword", "passfile", "sslkey"})


class ServerAddress:
    def __init__(self, url: str) -> None:
        parts = _parts(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        self.url = _joined(parts.netloc, parts.path, parts.query)
        """As libpq takes it."""
        self._secrets = [value for name, value in options if name in _SECRET and value]
        user, separator, host = parts.netloc.rpartition("@")
        name, colon, password = user.partition(":")
        if colon:
            self._secrets += [one for one in (password, unquote(password)) if one]
        shown = urlencode([pair for pair in options if pair[0] not in _SECRET])
        self.shown = _joined(f"{name}{separator}{host}", parts.path, shown)
        """Without passwords."""

    @property
    def has_password(self) -> bool:
        return bool(self._secrets)

    def without_secrets(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return re.sub(r"(password\s*=\s*)('[^']*'|\S+)", r"\1***", text)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # what is wrong may be the password: it is not shown
        raise SettingsError(
            f"database_url is no address: {str(error).partition(':')[0]}",
            "Write it as postgresql://user@host:port/database, other signs than letters and digits as %XX.",
        ) from error


def _joined(place: str, path: str, options: str) -> str:
    """With two slashes where no host is named too: the server's socket on this machine."""
    return f"postgresql://{place}{path}" + (f"?{options}" if options else "")


def is_server(url: str) -> bool:
    """Whether a database_url names a server of PostgreSQL."""
    return url.partition("://")[0].lower() in SCHEMES
