# pyright: basic
"""Logging in to HTTP servers. Imported by the process that talks to servers only.

A login is the SDK's flow (discovery, registration, PKCE, `state`, `iss`, `resource`), with its tokens stored.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing, suppress
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from crushpy.extensions.mcp.logins import IssuedTokens, Login, LoginStore, check_endpoint, origin_of
from crushpy.extensions.mcp.wire import ServerSpec

LOGIN_TIMEOUT_S = 300.0
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou can close this page.\n"


class LoginFlow(OAuthClientProvider):
    """The SDK's flow from the beginning, whose tokens are stored. It is its own TokenStorage."""

    def __init__(
        self, spec: ServerSpec, show: Callable[[str], Awaitable[None]], listener: "CallbackListener"
    ) -> None:
        self._spec, self._show = spec, show
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
                response = yield outgoing
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
        await asyncio.to_thread(check_endpoint, url, self._spec.oauth.private_hosts)

    async def _redirect(self, url: str) -> None:
        await self._check(url)
        offered = self.context.oauth_metadata
        if offered and "S256" not in (offered.code_challenge_methods_supported or ()):
            raise ConnectionError("its authorization server does not support PKCE with S256")
        client = self.context.client_info
        if self._spec.oauth.client_secret and client is not None and offered is not None:
            methods = offered.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            basic = "client_secret_basic" in methods
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        scopes = f"{self._spec.oauth.scopes or query.get('scope', '')} {self._store.index().scopes}"
        if scopes.strip():
            query["scope"] = " ".join(dict.fromkeys(scopes.split()))
        await self._show(urlunsplit(parts._replace(query=urlencode(query))))

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The configured client. A registered one is not used again: it names the port of its listener."""
        oauth = self._spec.oauth
        if not oauth.client_id:
            return None
        method = "client_secret_post" if oauth.client_secret else "none"
        return OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret or None,
            token_endpoint_auth_method=method,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context, client = self.context, self.context.client_info
        assert client is not None
        found = context.oauth_metadata
        endpoint = str(found.token_endpoint) if found else urljoin(self._spec.url, "/token")
        issuer = str(found.issuer) if found else origin_of(self._spec.url)
        resource = ""
        if context.should_include_resource_param(context.protocol_version):
            resource = context.get_resource_url()
        secret = "" if self._spec.oauth.client_secret else client.client_secret or ""
        method = client.token_endpoint_auth_method or "none"
        login = Login(endpoint, resource, client.client_id, secret, method, "", "", None)
        login.renew(IssuedTokens(tokens.access_token, tokens.refresh_token, tokens.expires_in))
        await asyncio.to_thread(self._store.write, issuer, login)


class CallbackListener:
    """Receives the browser's answer on loopback, for the time of a login."""

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
            writer.write(_PAGE)
            await writer.drain()
            said = dict(parse_qsl(where.query))
            if where.path == "/callback" and {"code", "error"} & said.keys() and not self._answer.done():
                self._answer.set_result(said)
        writer.close()
