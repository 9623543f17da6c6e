"""The methods of the protocol. The engine is loaded when the first session is opened."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.acp import client_connection as rpc
from crushpy.acp import wire_types as wire
from crushpy.acp.handshake import initialize_result
from crushpy.core.errors import CrushpyError, UsageError

if TYPE_CHECKING:
    from crushpy.acp.editor_thread import EditorThread

PAGE_SIZE = 100
CLOSE_TIMEOUT_S = 4.0


async def serve(pipes: rpc.Pipes, first: bytes, capabilities: rpc.Json | None) -> None:
    """Serves a client until it closes stdin; the arguments are what `shake_hands` returns."""
    server = AcpServer(pipes, first, capabilities)
    await server.client.ended.wait()
    await server.close()


class AcpServer:
    def __init__(self, pipes: rpc.Pipes, first: bytes, capabilities: rpc.Json | None) -> None:
        self._capabilities: wire.ClientCapabilities | None = None
        if capabilities is not None:
            try:
                self._capabilities = msgspec.convert(capabilities, wire.ClientCapabilities)
            except msgspec.ValidationError:
                self._capabilities = wire.ClientCapabilities()
        self.client = rpc.ClientConnection(pipes, first, self._handle, self._notified)
        self._threads: dict[str, EditorThread] = {}

    async def close(self) -> None:
        """Refuses open questions, ends the turns and releases the leases."""
        closing = [thread.close() for thread in self._threads.values()]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), CLOSE_TIMEOUT_S)

    def _notified(self, method: str, params: rpc.Json) -> None:
        if method == "session/cancel" and (thread := self._threads.get(str(params.get("sessionId")))):
            thread.cancel()

    async def _handle(self, method: str, params: rpc.Json) -> Any:
        """Calls the method of ours that implements `method`, with its parameters checked."""
        known: dict[str, tuple[type[wire.Wire], Callable[[Any], Awaitable[Any]]]] = {
            "initialize": (wire.InitializeParams, self._initialize),
            "authenticate": (wire.Wire, self._authenticate),
            "logout": (wire.Wire, self._authenticate),
            "session/new": (wire.OpenSessionParams, self._new),
            "session/load": (wire.OpenSessionParams, self._load),
            "session/resume": (wire.OpenSessionParams, self._resume),
            "session/fork": (wire.OpenSessionParams, self._fork),
            "session/list": (wire.ListSessionsParams, self._list),
            "session/delete": (wire.SessionParams, self._delete),
            "session/close": (wire.SessionParams, self._close),
            "session/prompt": (wire.PromptParams, self._prompt),
            "session/set_mode": (wire.SetModeParams, self._set_mode),
            "session/set_config_option": (wire.SetOptionParams, self._set_option),
        }
        if method not in known:
            raise rpc.RpcError(rpc.UNKNOWN_METHOD, f"There is no method {method}.")
        kind, implementation = known[method]
        if self._capabilities is None and method != "initialize":
            raise rpc.RpcError(rpc.INVALID_REQUEST, "Call `initialize` first.")
        try:
            given = msgspec.convert(params, kind)
        except msgspec.ValidationError as error:
            raise rpc.invalid(f"{method}: {error}") from None
        try:
            return await implementation(given)
        except CrushpyError as error:
            code = rpc.AUTH_REQUIRED if getattr(error, "kind", "") == "authentication" else rpc.INVALID_PARAMS
            raise rpc.RpcError(code, error.message, {"hint": error.hint}) from error

    async def _initialize(self, params: wire.InitializeParams) -> rpc.Json:
        self._capabilities = params.client_capabilities or wire.ClientCapabilities()
        return initialize_result(msgspec.to_builtins(self._capabilities))

    async def _authenticate(self, params: wire.Wire) -> rpc.Json:
        """A key is stored outside; there is nothing to do here."""
        return {}

    # --- open sessions ------------------------------------------------------------------------------------

    def _thread(self, session: str) -> "EditorThread":
        if session not in self._threads:
            raise rpc.RpcError(rpc.NOT_FOUND, f"The session {session} is not open.")
        return self._threads[session]

    async def _prompt(self, params: wire.PromptParams) -> rpc.Json:
        return await self._thread(params.session_id).prompt(params.prompt)

    async def _set_mode(self, params: wire.SetModeParams) -> rpc.Json:
        await self._thread(params.session_id).set_mode(params.mode_id)
        return {}

    async def _set_option(self, params: wire.SetOptionParams) -> rpc.Json:
        thread = self._thread(params.session_id)
        await thread.set_option(params.config_id, params.value)
        return {"configOptions": thread.options()}

    async def _close(self, params: wire.SessionParams) -> rpc.Json:
        await self._thread(params.session_id).close()
        del self._threads[params.session_id]
        return {}

    async def _new(self, params: wire.OpenSessionParams) -> rpc.Json:
        thread = await self._open(params, "")
        return {"sessionId": thread.id, **_opened(thread)}

    async def _load(self, params: wire.OpenSessionParams) -> rpc.Json:
        thread = await self._open(params, params.session_id)
        await thread.replay()
        return _opened(thread)

    async def _resume(self, params: wire.OpenSessionParams) -> rpc.Json:
        return _opened(await self._open(params, params.session_id))

    async def _fork(self, params: wire.OpenSessionParams) -> rpc.Json:
        thread = await self._open(params, params.session_id, fork=True)
        return {"sessionId": thread.id, **_opened(thread)}

    # --- sessions -----------------------------------------------------------------------------------------

    async def _open(
        self, params: wire.OpenSessionParams, session: str, *, fork: bool = False
    ) -> "EditorThread":
        from crushpy.acp.editor_thread import EditorFiles, EditorThread
        from crushpy.bootstrap.opening import HostAdditions, open_conversation
        from crushpy.bootstrap.project_environment import ProjectEnvironment
        from crushpy.core.start_options import StartOptions
        from crushpy.llm.provider_factory import find_endpoint, waits_for_keyring

        if session in self._threads and not fork:
            await self._threads.pop(session).close()
        folder = Path(params.cwd)
        if not folder.is_absolute() or not folder.is_dir():
            raise rpc.invalid(f"cwd has to be the absolute path of a folder, not {folder}.")
        servers = params.mcp_servers or ()
        names = tuple(server.name for server in servers)
        environment = ProjectEnvironment(folder, _server_flags(servers), editor_servers=names)
        options = StartOptions(cwd=str(folder), session=session, fork=fork)
        capabilities = self._capabilities or wire.ClientCapabilities()
        files = EditorFiles(self.client, capabilities.fs or wire.FilesClientCapabilities(), folder.resolve())
        additions = HostAdditions(answers=True, files=files, origin="editor")
        try:
            conversation = await open_conversation(environment, options, additions)
        except UsageError as error:
            raise rpc.RpcError(rpc.NOT_FOUND, error.message, {"hint": error.hint}) from error
        model, settings = conversation.info.model, conversation.settings
        try:
            if not waits_for_keyring(model, settings):
                find_endpoint(model, settings)
        except CrushpyError:
            await conversation.close()
            raise
        features = capabilities.session or wire.SessionClientCapabilities()
        name = conversation.info.id if fork else session or conversation.info.root_id
        thread = EditorThread(name, conversation, self.client, features, files)
        self._threads[thread.id] = thread
        return thread

    async def _list(self, params: wire.ListSessionsParams) -> rpc.Json:
        from datetime import UTC, datetime

        from crushpy.bootstrap.project_environment import ProjectEnvironment

        cursor = params.cursor or "0"
        if not cursor.isdecimal():
            raise rpc.invalid(f"The cursor {cursor!r} is not one of ours.")
        start = int(cursor)
        async with ProjectEnvironment(Path.cwd()).open_store() as store:
            found = await store.sessions.list_tips(params.cwd or None, start + PAGE_SIZE + 1)
            shown = found[start : start + PAGE_SIZE]
            forks = await store.sessions.list_forks([info.root_id for info in shown])
            named = [(info.root_id, info, "") for info in shown]
            named += [(fork.id, await store.sessions.find_tip(fork.id), fork.root_id) for fork in forks]
        page = [
            {
                "sessionId": name,
                "cwd": info.cwd,
                "title": (f"{info.title} (fork)" if forked else info.title) or None,
                "updatedAt": datetime.fromtimestamp(info.updated_at, UTC).isoformat(),
                **({"_meta": {"crushpy": {"fork_of": forked}}} if forked else {}),
            }
            for name, info, forked in sorted(named, key=lambda row: -row[1].updated_at)
        ]
        more = len(found) > start + PAGE_SIZE
        return {"sessions": page, **({"nextCursor": str(start + PAGE_SIZE)} if more else {})}

    async def _delete(self, params: wire.SessionParams) -> rpc.Json:
        from crushpy.bootstrap.project_environment import ProjectEnvironment
        from crushpy.engine.session.browser import SessionBrowser

        try:
            async with ProjectEnvironment(Path.cwd()).open_store() as store:
                info = await store.sessions.find(params.session_id)
                if info.kind == "fork":
                    told = f"{info.id} is a fork: it is deleted with its conversation, {info.root_id}."
                    raise rpc.invalid(told)
                if (thread := self._threads.pop(params.session_id, None)) is not None:
                    await thread.close()
                await SessionBrowser(store).erase(info.root_id)
        except UsageError as error:
            raise rpc.RpcError(rpc.NOT_FOUND, error.message) from error
        return {}


def _opened(thread: "EditorThread") -> rpc.Json:
    """The answer to a request that has opened a session; its commands are announced after it."""
    asyncio.get_running_loop().call_soon(thread.announce_commands)
    return thread.state()


def _server_flags(servers: Sequence[wire.McpServerParams]) -> dict[str, object]:
    flags: dict[str, object] = {}
    for server in servers:
        given: rpc.Json = {name: getattr(server, name) for name in ("url", "command", "args")}
        for name in ("env", "headers"):
            given[name] = {entry.name: entry.value for entry in getattr(server, name)}
        flags |= {f"mcp.{server.name}.{key}": value for key, value in given.items() if value}
    return flags
