"""Which HTTP servers have a login, and whether one wants it; needs neither the SDK nor a keyring."""

from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from crushpy.extensions.mcp.wire import ServerSpec
from crushpy.security.private_files import read_stored, write_private


class LoginIndex(msgspec.Struct):
    """What is known of the login of a server's address: without it no keyring is opened. It has no secret."""

    issuer: str = ""
    scopes: str = ""
    """Those that the server asked for when it refused a request."""


class LoginFile:
    """The file with the index of a login, beside the keyring."""

    def __init__(self, spec: ServerSpec) -> None:
        parts = urlsplit(spec.url)
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        """The address that the login is valid for: without the query."""
        self.path = Path(spec.locks) / f"login-{sha256(self.address.encode()).hexdigest()[:16]}"

    def read_index(self) -> LoginIndex:
        return read_stored(self.path, LoginIndex) or LoginIndex()

    def write_index(self, index: LoginIndex) -> None:
        write_private(self.path, msgspec.json.encode(index))


async def wants_login(spec: ServerSpec) -> bool:
    """Whether an HTTP server refuses a request without a login: known before the SDK is imported."""
    headers = spec.headers or {}
    if not spec.url or LoginFile(spec).read_index().issuer or "authorization" in map(str.lower, headers):
        return False
    from crushpy.http.client import Client
    from crushpy.http.common import HttpError

    accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    client = Client()
    try:
        body = b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}'
        with await client.request("POST", spec.url, headers | accepted, body) as response:
            return response.status == 401
    except HttpError:
        return False  # the SDK says what is wrong
    finally:
        await client.close()
