# pyright: basic
"""The logins of HTTP servers: where they are kept, how their tokens are sent and refreshed.

Imported by the process that talks to servers only. Tokens are kept in the system's keyring by issuer, and are
refreshed by one process at a time, at the endpoint that issued them. The SDK is not imported here: a server
that needs a login is told apart before.
"""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from crushpy.extensions.mcp.wire import ServerSpec
from crushpy.http.public_addresses import is_public
from crushpy.llm.system_keyring import KeyringUnusable, read_secret, write_secret
from crushpy.security.private_files import locked, read_stored, write_private

LOCK_TIMEOUT_S = REFRESH_TIMEOUT_S = 30.0
EXPIRY_MARGIN_S = 60.0
"""A token is refreshed this long before it expires, or in the last tenth of a shorter life."""


class IssuedTokens(msgspec.Struct):
    """What a token endpoint answers."""

    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None


class LoginIndex(msgspec.Struct):
    """The file beside the keyring: without it no keyring is opened. It has no secret."""

    issuer: str = ""
    scopes: str = ""
    """Those that the server asked for when it refused a request."""


class Login(msgspec.Struct):
    """What a login leaves in the keyring, as JSON."""

    token_endpoint: str
    resource: str
    client_id: str
    client_secret: str
    auth_method: str
    access_token: str
    refresh_token: str
    refresh_at: float | None

    def renew(self, tokens: IssuedTokens) -> None:
        self.access_token = tokens.access_token
        self.refresh_token = tokens.refresh_token or self.refresh_token
        life = tokens.expires_in
        self.refresh_at = None if life is None else time.time() + life - min(EXPIRY_MARGIN_S, life / 10)


class LoginStore:
    """The login of one server's address."""

    def __init__(self, spec: ServerSpec) -> None:
        parts = urlsplit(spec.url)
        self._server = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._file = Path(spec.locks) / f"login-{sha256(self._server.encode()).hexdigest()[:16]}"
        self.lock_file = self._file.with_suffix(".lock")

    def index(self) -> LoginIndex:
        return read_stored(self._file, LoginIndex) or LoginIndex()

    def write_index(self, index: LoginIndex) -> None:
        write_private(self._file, msgspec.json.encode(index))

    def read(self) -> Login | None:
        issuer = self.index().issuer
        with suppress(KeyringUnusable, msgspec.MsgspecError):
            text = read_secret(f"mcp {issuer} {self._server}") if issuer else None
            return msgspec.json.decode(text, type=Login) if text else None
        return None

    def write(self, issuer: str, login: Login) -> None:
        write_secret(f"mcp {issuer} {self._server}", msgspec.json.encode(login).decode())
        if self.index() != (index := LoginIndex(issuer)):
            self.write_index(index)


class TokenAuth(httpx2.Auth):
    """Sends the token of the last login to the server."""

    login_needed = False
    """The server has refused a request: only `crushpy mcp login` helps."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._store = LoginStore(spec)
        self._login: Login | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if origin_of(str(request.url)) != origin_of(self._spec.url):
            yield request
            return
        login = self._login = self._login or await asyncio.to_thread(self._read)
        if login is not None and login.refresh_at is not None and time.time() >= login.refresh_at:
            login = self._login = await asyncio.to_thread(self._refresh, login)
        response = yield _with_token(request, login)
        if response.status_code == 401 and login is not None:
            login = self._login = await asyncio.to_thread(self._refresh, login)
            if login is not None:
                response = yield _with_token(request, login)
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code == 401 or (response.status_code == 403 and "insufficient_scope" in challenge):
            index = self._store.index()
            index.scopes = challenge.partition('scope="')[2].partition('"')[0]
            await asyncio.to_thread(self._store.write_index, index)
            self.login_needed = True
            raise ConnectionError("it needs login")

    def has_login(self) -> bool:
        return bool(self._store.index().issuer)

    def _read(self) -> Login | None:
        login = self._store.read()
        if login is not None:
            check_endpoint(self._spec.url, self._spec.oauth.private_hosts)
        return login

    def _refresh(self, used: Login) -> Login | None:
        """The login with another token than the one that was used, or None if it has ended.

        Runs to its end even if the call that needs it is cancelled: a refresh token may be valid once only.
        """
        with locked(self._store.lock_file, LOCK_TIMEOUT_S):
            login = self._store.read()
            if login is None or login.access_token != used.access_token:
                return login  # another process has refreshed it
            if not login.refresh_token:
                return None
            check_endpoint(login.token_endpoint, self._spec.oauth.private_hosts)
            form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
            form |= {"client_id": login.client_id} | ({"resource": login.resource} if login.resource else {})
            secret = self._spec.oauth.client_secret or login.client_secret
            auth = None
            if login.auth_method == "client_secret_basic":
                auth = httpx2.BasicAuth(quote(login.client_id, safe=""), quote(secret, safe=""))
            elif secret:
                form["client_secret"] = secret
            answer = httpx2.post(login.token_endpoint, data=form, auth=auth, timeout=REFRESH_TIMEOUT_S)
            if answer.status_code in (400, 401):
                return None
            answer.raise_for_status()
            login.renew(msgspec.json.decode(answer.content, type=IssuedTokens, strict=False))
            self._store.write(self._store.index().issuer, login)
            return login


def _with_token(request: httpx2.Request, login: Login | None) -> httpx2.Request:
    if login is not None:
        request.headers["Authorization"] = f"Bearer {login.access_token}"
    return request


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def check_endpoint(url: str, private_hosts: bool) -> None:
    """Raises ConnectionError unless credentials may be sent there."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        public = {is_public(str(info[4][0])) for info in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        raise ConnectionError(f"the login endpoint {host} cannot be resolved") from None
    if parts.scheme != "https" and (not private_hosts or True in public):
        raise ConnectionError(f"the login endpoint {parts.scheme}://{host} is not https")
    if False in public and not private_hosts:
        raise ConnectionError(
            f"the login endpoint {host} is in a private network (permissions.private_hosts allows it)"
        )
