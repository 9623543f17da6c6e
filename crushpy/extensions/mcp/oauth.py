# pyright: basic
"""Logging in to HTTP servers, and the tokens. Imported by the process that talks to servers only.

A login is the SDK's flow (discovery, registration, PKCE, `state`, `iss`, `resource`). Its tokens are kept in
the system's keyring by issuer, and are refreshed here: by one process at a time, at the endpoint that issued
them.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from crushpy.extensions.mcp.login_index import LoginFile, LoginIndex
from crushpy.extensions.mcp.wire import ServerSpec
from crushpy.http.public_addresses import is_public, read_address
from crushpy.llm.key_store import KeyringUnusable, read_secret, write_secret
from crushpy.security.private_files import locked

LOGIN_TIMEOUT_S = 300.0
LOCK_TIMEOUT_S = REFRESH_TIMEOUT_S = 30.0
EXPIRY_MARGIN_S = 60.0
"""A token is refreshed this long before it expires, or in the last tenth of a shorter life."""
_PAGE = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{}\n"
_RECEIVED = _PAGE.format("200 OK", "You can close this page.")
_NOT_EXPECTED = _PAGE.format("400 Bad Request", "This is no answer to the login in progress.")


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

    def renew(self, tokens: OAuthToken) -> None:
        self.access_token = tokens.access_token
        self.refresh_token = tokens.refresh_token or self.refresh_token
        life = tokens.expires_in
        self.refresh_at = None if life is None else time.time() + life - min(EXPIRY_MARGIN_S, life / 10)


class LoginStore(LoginFile):
    """The login of one server's address."""

    def read(self) -> Login | None:
        issuer = self.read_index().issuer
        with suppress(KeyringUnusable, msgspec.MsgspecError):
            text = read_secret(f"mcp {issuer} {self.address}") if issuer else None
            return msgspec.json.decode(text, type=Login) if text else None
        return None

    def write(self, issuer: str, login: Login) -> None:
        write_secret(f"mcp {issuer} {self.address}", msgspec.json.encode(login).decode())
        if self.read_index() != (index := LoginIndex(issuer)):
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
        if _origin(str(request.url)) != _origin(self._spec.url):
            yield request
            return
        login = self._login = self._login or await asyncio.to_thread(self._read)
        if login is not None and login.refresh_at is not None and time.time() >= login.refresh_at:
            login = self._login = await asyncio.to_thread(self._refresh, login)
        response = yield self._with_token(request, login)
        if response.status_code == 401 and login is not None:
            login = self._login = await asyncio.to_thread(self._refresh, login)
            if login is not None:
                response = yield self._with_token(request, login)
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code == 401 or (response.status_code == 403 and "insufficient_scope" in challenge):
            index = self._store.read_index()
            index.scopes = challenge.partition('scope="')[2].partition('"')[0]
            await asyncio.to_thread(self._store.write_index, index)
            self.login_needed = True
            raise ConnectionError("it needs login")

    def _with_token(self, request: httpx2.Request, login: Login | None) -> httpx2.Request:
        if login is None:
            return request
        request.headers["Authorization"] = f"Bearer {login.access_token}"
        return only_to_checked(request, self._spec.private_hosts)

    def _read(self) -> Login | None:
        login = self._store.read()
        if login is not None:
            check_endpoint(self._spec.url, self._spec.private_hosts)
        return login

    def _refresh(self, used: Login) -> Login | None:
        """The login with another token than the one that was used, or None if it has ended.

        Runs to its end even if the call that needs it is cancelled: a refresh token may be valid once only.
        """
        with locked(self._store.path.with_suffix(".lock"), LOCK_TIMEOUT_S):
            login = self._store.read()
            if login is None or login.access_token != used.access_token:
                return login  # another process has refreshed it
            if not login.refresh_token:
                return None
            check_endpoint(login.token_endpoint, self._spec.private_hosts)
            form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
            form |= {"client_id": login.client_id} | ({"resource": login.resource} if login.resource else {})
            secret = self._spec.client_secret or login.client_secret
            auth = None
            if login.auth_method == "client_secret_basic":
                auth = httpx2.BasicAuth(quote(login.client_id, safe=""), quote(secret, safe=""))
            elif secret:
                form["client_secret"] = secret
            answer = asyncio.run(self._post(login.token_endpoint, form, auth))
            if answer.status_code in (400, 401):
                return None
            answer.raise_for_status()
            login.renew(OAuthToken.model_validate_json(answer.content))
            self._store.write(self._store.read_index().issuer, login)
            return login

    async def _post(self, url: str, form: dict[str, str], auth: httpx2.Auth | None) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=REFRESH_TIMEOUT_S) as client:
            request = only_to_checked(client.build_request("POST", url, data=form), self._spec.private_hosts)
            return await client.send(request, auth=auth)


class LoginFlow(OAuthClientProvider):
    """The SDK's flow from the beginning, whose tokens are stored. It is its own TokenStorage."""

    def __init__(self, spec: ServerSpec, show: Callable[[str], None], listener: "CallbackListener") -> None:
        self._spec, self._show, self._listener = spec, show, listener
        self._store = LoginStore(spec)
        self._begun = False
        address = f"http://127.0.0.1:{listener.port}/callback"
        metadata = OAuthClientMetadata(client_name="crushpy", redirect_uris=[address])  # pyright: ignore[reportArgumentType]
        metadata_url = spec.oauth.client_metadata_url or None
        super().__init__(
            spec.url, metadata, self, self._redirect, listener.wait, client_metadata_url=metadata_url
        )

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    await self._check(str(outgoing.url))
                response = yield only_to_checked(outgoing, self._spec.private_hosts)
                if not self._begun:
                    self._begun = True
                    await self._check(self._spec.url)
                    if response.status_code != 401:  # it demands a login later only
                        response = httpx2.Response(401, request=request)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _check(self, url: str) -> None:
        await asyncio.to_thread(check_endpoint, url, self._spec.private_hosts)

    async def _redirect(self, url: str) -> None:
        await self._check(url)
        offered = self.context.oauth_metadata
        if offered and "S256" not in (offered.code_challenge_methods_supported or ()):
            raise ConnectionError("its authorization server does not support PKCE with S256")
        if offered and not offered.authorization_response_iss_parameter_supported:
            places = offered.issuer, offered.authorization_endpoint, offered.token_endpoint
            issuer, page, endpoint = (_site(str(place)) for place in places)
            if page not in (issuer, endpoint):  # it would get the code that another server issues
                raise ConnectionError(f"its authorization server sends you to the login page of {page}")
        client = self.context.client_info
        if self._spec.client_secret and client is not None and offered is not None:
            methods = offered.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            basic = "client_secret_basic" in methods
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self._listener.state = query["state"]
        scopes = (
            f"{' '.join(self._spec.oauth.scopes) or query.get('scope', '')} {self._store.read_index().scopes}"
        )
        if scopes.strip():
            query["scope"] = " ".join(dict.fromkeys(scopes.split()))
        self._show(urlunsplit(parts._replace(query=urlencode(query))))

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The configured client. A registered one is not used again: it names the port of its listener."""
        client_id, secret = self._spec.oauth.client_id, self._spec.client_secret
        if not client_id:
            return None
        method = "client_secret_post" if secret else "none"
        return OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=method,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context, client = self.context, self.context.client_info
        assert client is not None
        found = context.oauth_metadata
        endpoint = str(found.token_endpoint) if found else urljoin(self._spec.url, "/token")
        issuer = str(found.issuer) if found else _origin(self._spec.url)
        resource = ""
        if context.should_include_resource_param(context.protocol_version):
            resource = context.get_resource_url()
        secret = "" if self._spec.client_secret else client.client_secret or ""
        method = client.token_endpoint_auth_method or "none"
        login = Login(endpoint, resource, client.client_id, secret, method, "", "", None)
        login.renew(tokens)
        await asyncio.to_thread(self._store.write, issuer, login)


class CallbackListener:
    """Receives the browser's answer on loopback, for the time of a login."""

    state = ""
    """What an answer has to repeat: any program of this machine can connect."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> "CallbackListener":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def wait(self) -> AuthorizationCodeResult:
        with closing(self._server):
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                said = await self._answer
        if "error" in said:
            raise ConnectionError(f"the login was refused: {said['error']}")
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            line = (await reader.readline()).decode("ascii", "replace").split()
            where = urlsplit(line[1] if len(line) > 1 else "/")
            said = dict(parse_qsl(where.query))
            ours = secrets.compare_digest(said.get("state", "").encode(), self.state.encode())
            expected = bool(self.state and ours and {"code", "error"} & said.keys())
            writer.write((_RECEIVED if expected else _NOT_EXPECTED).encode())
            await writer.drain()
            if expected and not self._answer.done():
                self._answer.set_result(said)
        writer.close()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _site(url: str) -> str:
    """The domain of a server: hosts of one owner usually share its last two names."""
    host = urlsplit(url).hostname or ""
    named = "." in host and read_address(host) is None
    return ".".join(host.split(".")[-2:]) if named else urlsplit(url).netloc


def only_to_checked(request: httpx2.Request, private_hosts: bool) -> httpx2.Request:
    """The request, which is sent only if the address that its name has led to may get credentials: it may be
    another one than `check_endpoint` found before."""
    host = ""

    async def trace(event: str, info: dict[str, Any]) -> None:
        nonlocal host
        host = info["host"] if event == "connection.connect_tcp.started" else host
        if event == "connection.connect_tcp.complete" and host == request.url.raw_host.decode():  # no proxy
            stream = info["return_value"]
            try:
                check_endpoint(str(request.url), private_hosts, stream.get_extra_info("server_addr")[0])
            except ConnectionError:
                await stream.aclose()
                raise

    request.extensions["trace"] = trace
    return request


def check_endpoint(url: str, private_hosts: bool, address: str = "") -> None:
    """Raises ConnectionError unless credentials may be sent there. `address`: of a connection to it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        found = [address] if address else [str(info[4][0]) for info in socket.getaddrinfo(host, None)]
    except (OSError, ValueError):
        raise ConnectionError(f"the login endpoint {host} cannot be resolved") from None
    public = set(map(is_public, found))
    if parts.scheme != "https" and (not private_hosts or True in public):
        raise ConnectionError(f"the login endpoint {parts.scheme}://{host} is not https")
    if False in public and not private_hosts:
        raise ConnectionError(
            f"the login endpoint {host} is in a private network (permissions.private_hosts allows it)"
        )
