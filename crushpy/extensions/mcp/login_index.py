"""Which HTTP servers have a login, and whether one wants it; needs neither the SDK nor a keyring."""

from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from crushpy.extensions.mcp.wire import ServerSpec
from crushpy.security.private_files import read_stored


class LoginIndex(msgspec.Struct):
    """The file beside the keyring: without it no keyring is opened. It has no secret."""

    issuer: str = ""
    scopes: str = ""
    """Those that the server asked for when it refused a request."""


def login_address(url: str) -> str:
    """The address that a login is valid for: without the query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def login_file(spec: ServerSpec) -> Path:
    return Path(spec.locks) / f"login-{sha256(login_address(spec.url).encode()).hexdigest()[:16]}"


async def wants_login(spec: ServerSpec) -> bool:
    """Whether an HTTP server refuses a request without a login: known before the SDK is imported."""
    index = read_stored(login_file(spec), LoginIndex) if spec.url else None
    if not spec.url or (index and index.issuer) or "authorization" in map(str.lower, spec.headers or ()):
        return False
    from crushpy.http.client import Client
    from crushpy.http.common import HttpError

    headers = {
        **(spec.headers or {}),
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    client = Client()
    try:
        body = b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}'
        with await client.request("POST", spec.url, headers, body) as response:
            return response.status == 401
    except HttpError:
        return False  # the SDK says what is wrong
    finally:
        await client.close()
