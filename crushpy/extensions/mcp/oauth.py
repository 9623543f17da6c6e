# pyright: basic
"""Logging in to HTTP servers. Imported by the process that talks to servers only.

The SDK does the protocol (discovery, registration, PKCE, `state`, `iss`, `resource`); here are the tokens in
the system's keyring, the listener for the browser's answer, and the checks of addresses.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from crushpy.core.paths import private_dir
from crushpy.extensions.mcp.wire import LoginNeededError, ServerSpec
from crushpy.llm.system_keyring import KeyringUnusable, read_secret, write_secret
from crushpy.security.private_files import locked

LOGIN_TIMEOUT_S = 300.0
LOCK_TIMEOUT_S = 30.0
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou can close this page.\n"


class StoredTokens(msgspec.Struct):
    """What is stored of one server: in the keyring, as JSON."""

    tokens: dict[str, Any] | None = None
    client: dict[str, Any] | None = None
    expires_at: float = 0.0
    issuer: str = ""


class KeyringStorage:
    """Implements the SDK's TokenStorage. The name includes the origin: no other server is sent the tokens."""

    def __init__(self, url: str, folder: str) -> None:
        """`folder`: for a file that says that tokens were stored; without it no keyring is opened."""
        parts = urlsplit(url)
        self.name = f"mcp {parts.scheme}://{parts.netloc}{parts.path}"
        self.mark = Path(folder) / f"login-{sha256(self.name.encode()).hexdigest()[:16]}"

    def read(self) -> StoredTokens:
        if not self.mark.exists():
            return StoredTokens()
        try:
            text = read_secret(self.name)
        except KeyringUnusable:
            text = None
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(text or "{}", type=StoredTokens)
        return StoredTokens()

    def write(self, stored: StoredTokens) -> None:
        write_secret(self.name, msgspec.json.encode(stored).decode())
        private_dir(self.mark.parent)
        self.mark.touch(mode=0o600)

    async def get_tokens(self) -> OAuthToken | None:
        stored = await asyncio.to_thread(self.read)
        return OAuthToken.model_validate(stored.tokens) if stored.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        stored = await asyncio.to_thread(self.read)
        stored.tokens = tokens.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self.write, stored)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        stored = await asyncio.to_thread(self.read)
        return OAuthClientInformationFull.model_validate(stored.client) if stored.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        stored = await asyncio.to_thread(self.read)
        stored.client = client_info.model_dump(mode="json", exclude_none=True)
        stored.issuer = str(getattr(client_info, "issuer", "") or "")
        await asyncio.to_thread(self.write, stored)


class CallbackListener:
    """Receives the browser's answer on loopback; it exists only during a login."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def wait(self) -> AuthorizationCodeResult:
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                return await self._answer
        finally:
            if self._server is not None:
                self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            line = (await reader.readline()).decode("ascii", "replace").split()
            where = urlsplit(line[1] if len(line) > 1 else "/")
            writer.write(_PAGE)
            await writer.drain()
            said = {name: values[0] for name, values in parse_qs(where.query).items()}
            if where.path == "/callback" and not self._answer.done():
                if "error" in said:
                    self._answer.set_exception(ConnectionError(f"the login was refused: {said['error']}"))
                elif "code" in said:
                    self._answer.set_result(
                        AuthorizationCodeResult(
                            code=said["code"], state=said.get("state"), iss=said.get("iss")
                        )
                    )
        writer.close()


class CheckedOAuth(OAuthClientProvider):
    """Sends credentials to public https addresses only, and lets one process at a time refresh a token."""

    lock_file: Path | None = None
    private_hosts = False
    server_origin = ""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        lock = await self._lock_if_stale()
        try:
            outgoing = await flow.__anext__()
            while True:
                if _origin(str(outgoing.url)) != self.server_origin:
                    await asyncio.to_thread(check_endpoint, str(outgoing.url), self.private_hosts)
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            if lock is not None:
                await asyncio.to_thread(lock.__exit__, None, None, None)

    async def _lock_if_stale(self) -> Any:
        """If the token has to be refreshed: waits for the right to do so, and reads what another process may
        have stored meanwhile."""
        context = self.context
        if not self._initialized:
            await self._initialize()
        if context.is_token_valid() or not context.can_refresh_token() or self.lock_file is None:
            return None
        lock = locked(self.lock_file, LOCK_TIMEOUT_S)
        await asyncio.to_thread(lock.__enter__)
        stored = await context.storage.get_tokens()
        if stored is not None and context.current_tokens != stored:
            context.current_tokens = stored
            context.update_token_expiry(stored)
        return lock


async def make_auth(spec: ServerSpec, show: Callable[[str], Awaitable[None]] | None) -> Any:
    """The authorization of an HTTP server. `show` opens a login page; without it a login is refused."""
    listener = CallbackListener()
    if show is not None:
        await listener.open()

    async def redirect(url: str) -> None:
        if show is None:
            raise LoginNeededError
        await asyncio.to_thread(check_endpoint, url, spec.oauth.private_hosts)
        await show(url)

    storage = KeyringStorage(spec.url, spec.locks)
    oauth = spec.oauth
    metadata = OAuthClientMetadata(
        client_name="crushpy",
        redirect_uris=[f"http://127.0.0.1:{listener.port or 1}/callback"],  # pyright: ignore[reportArgumentType]
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="client_secret_post" if oauth.client_secret else "none",
        scope=oauth.scopes or None,
    )
    if oauth.client_id:
        own = metadata.model_dump(exclude_none=True)
        known = OAuthClientInformationFull(
            **own, client_id=oauth.client_id, client_secret=oauth.client_secret or None
        )
        storage.get_client_info = _always(known)
    elif show is not None:
        storage.get_client_info = _always(None)  # a registration names the port of its listener
    auth = CheckedOAuth(
        spec.url,
        metadata,
        storage,
        redirect,
        listener.wait,
        client_metadata_url=oauth.client_metadata_url or None,
    )
    auth.private_hosts = oauth.private_hosts
    auth.server_origin = _origin(spec.url)
    auth.lock_file = storage.mark.with_suffix(".lock")
    return auth


def _always(value: Any) -> Any:
    async def get() -> Any:
        return value

    return get


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def check_endpoint(url: str, private_hosts: bool) -> None:
    """Raises ConnectionError unless credentials may be sent there."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not private_hosts:
        raise ConnectionError(f"the login endpoint {parts.scheme}://{host} is not https")
    try:
        found = {ipaddress.ip_address(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        raise ConnectionError(f"the login endpoint {host} cannot be resolved") from None
    if not private_hosts and any(not address.is_global for address in found):
        raise ConnectionError(
            f"the login endpoint {host} is in a private network (permissions.private_hosts allows it)"
        )
