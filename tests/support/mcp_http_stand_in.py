"""An MCP server over streamable HTTP, and an authorization server, both on loopback and without the SDK.

They check what a client has to do (PKCE, `state`, `resource`, the origin of tokens) and keep every request.
"""

import base64
import hashlib
import json
import queue
import secrets
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from support.mcp_stand_in import StandIn

Json = dict[str, Any]


class Received:
    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        self.method, self.path = handler.command, parts.path
        self.query = dict(parse_qsl(parts.query))
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = handler.rfile.read(int(self.headers.get("content-length", 0))).decode()

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body))


class Loopback:
    """An HTTP server in a thread. Subclasses have `respond`, and use `reply` in it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                received = Received(self)
                outer.received.append(received)
                outer.respond(self, received)

            do_GET = do_POST = do_DELETE = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def respond(self, handler: Any, received: Received) -> None:
        raise NotImplementedError

    def of(self, path: str) -> list[Received]:
        return [request for request in self.received if request.path == path]


def reply(handler: Any, status: int, body: Any = None, **headers: str) -> None:
    data = b"" if body is None else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


class AuthServer(Loopback):
    """Issues tokens. `resource`: the address of the MCP server that it expects to be named."""

    def __init__(self, **metadata: Any) -> None:
        super().__init__()
        self.metadata = metadata
        self.redirects: dict[str, str] = {}
        """Where a path sends its clients, in place of an answer."""
        self.resource = ""
        self.lifetime: int | None = 3_600
        self.clients: dict[str, str] = {}
        """Secrets by id; a client without one has an empty secret."""
        self.answer: Callable[[dict[str, str]], dict[str, str]] = lambda answer: answer
        """Changes what the browser is sent back with."""
        self.rotates = True
        """Each refresh brings another refresh token."""
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.problems: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def respond(self, handler: Any, received: Received) -> None:
        match received.path:
            case path if path in self.redirects:
                reply(handler, 307, Location=self.redirects[path])
            case "/.well-known/oauth-authorization-server":
                reply(handler, 200, self._metadata())
            case "/register":
                self._register(handler, json.loads(received.body))
            case path if path.startswith("/authorize"):
                self._authorize(handler, received.query)
            case "/token":
                with self._lock:
                    self._token(handler, received)
            case _:
                reply(handler, 404)

    def _metadata(self) -> Json:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize;touch was-run;",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    def _register(self, handler: Any, asked: Json) -> None:
        client = f"registered-{len(self.clients)}"
        self.clients[client] = ""
        reply(handler, 201, {**asked, "client_id": client, "token_endpoint_auth_method": "none"})

    def _check(self, fine: bool, problem: str) -> bool:
        if not fine:
            self.problems.append(problem)
        return fine

    def _authorize(self, handler: Any, query: dict[str, str]) -> None:
        known = query.get("client_id", "") in self.clients or query["client_id"].startswith("https://")
        fine = (
            self._check(known, f"unknown client {query.get('client_id')}")
            and self._check(query.get("response_type") == "code", "no code")
            and self._check(query.get("code_challenge_method") == "S256", "no PKCE")
            and self._check(len(query.get("state", "")) > 20, "no state")
            and self._check(query.get("resource") == self.resource, f"resource {query.get('resource')}")
            and self._check(query.get("redirect_uri", "").startswith("http://127.0.0.1:"), "redirect")
        )
        if not fine:
            reply(handler, 400, {"problems": self.problems})
            return
        code = secrets.token_urlsafe()
        self._codes[code] = query
        answer = self.answer({"code": code, "state": query["state"], "iss": self.origin})
        reply(handler, 302, Location=f"{query['redirect_uri']}?{urlencode(answer)}")

    def _token(self, handler: Any, received: Received) -> None:
        form = received.form
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if (basic := received.headers.get("authorization", "")).startswith("Basic "):
            client, _, secret = base64.b64decode(basic[6:]).decode().partition(":")
        fine = self._check(self.clients.get(client, "") == secret, "wrong secret") and self._check(
            form.get("resource") == self.resource, f"resource {form.get('resource')}"
        )
        if form["grant_type"] == "authorization_code":
            query = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            fine = fine and self._check(query["code_challenge"] == challenge, "wrong verifier")
        elif form["refresh_token"] in self.refresh:
            self.refresh -= {form["refresh_token"]} if self.rotates else set()
        else:
            fine = self._check(False, "a refresh token was used twice")
        if not fine:
            reply(handler, 400, {"error": "invalid_grant"})
            return
        access, refresh = f"access-{secrets.token_hex(4)}", f"refresh-{secrets.token_hex(4)}"
        self.access.add(access)
        expiry = {} if self.lifetime is None else {"expires_in": self.lifetime}
        answer = {"access_token": access, "token_type": "Bearer", **expiry}
        if self.rotates or form["grant_type"] == "authorization_code":
            self.refresh.add(refresh)
            answer["refresh_token"] = refresh
        reply(handler, 200, answer)


class HttpStandIn(Loopback):
    """The stand-in over HTTP. With `auth` it accepts the tokens of that server only."""

    def __init__(
        self,
        *words: str,
        count: int = 3,
        auth: AuthServer | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(tls)
        self.stand_in = StandIn(count, *words)
        self.auth = auth
        self.wanted_scope = ""
        self.url = f"{self.origin}/mcp"
        self._answers: queue.Queue[Any] = queue.Queue()
        if auth is not None:
            auth.resource = self.url

    def respond(self, handler: Any, received: Received) -> None:
        if received.path == "/.well-known/oauth-protected-resource/mcp" and self.auth:
            reply(handler, 200, {"resource": self.url, "authorization_servers": [self.auth.origin]})
        elif received.path != "/mcp":
            reply(handler, 404)
        elif self.auth and received.headers.get("authorization", "")[7:] not in self.auth.access:
            reply(handler, 401, {}, WWW_Authenticate='Bearer error="invalid_token"')
        elif self.wanted_scope:
            challenge = f'Bearer error="insufficient_scope", scope="{self.wanted_scope}"'
            reply(handler, 403, {}, WWW_Authenticate=challenge)
        elif received.method != "POST":
            reply(handler, 405)
        else:
            self._post(handler, json.loads(received.body))

    def _post(self, handler: Any, message: Json) -> None:
        if "method" not in message:
            self._answers.put(message.get("result"))
            reply(handler, 202)
        elif message["method"] == "tools/call":
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Connection", "close")
            handler.end_headers()

            def send(event: Json) -> None:
                data = json.dumps({"jsonrpc": "2.0", **event})
                handler.wfile.write(f"event: message\ndata: {data}\n\n".encode())

            def ask(request: Json) -> Any:
                send({"id": "question", **request})
                return self._answers.get()

            if (answer := self.stand_in.answer(message, send, ask)) is not None:
                send(answer)
            handler.close_connection = True
        elif (answer := self.stand_in.answer(message, lambda _: None, lambda _: None)) is None:
            reply(handler, 202)
        else:
            reply(handler, 200, {"jsonrpc": "2.0", **answer}, Mcp_Session_Id="1")


@contextmanager
def protected_server(*words: str, **metadata: Any) -> Generator[tuple[HttpStandIn, AuthServer]]:
    auth = AuthServer(**metadata)
    server = HttpStandIn(*words, auth=auth)
    try:
        yield server, auth
    finally:
        server.close()
        auth.close()
