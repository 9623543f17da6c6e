"""One language server of a workspace: its process, its messages, and the documents that it knows."""

import asyncio
import os
import re
import shlex
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from crushpy.core.events import Notice
from crushpy.core.messages import Json
from crushpy.sandbox.supervisor.process_control import descendants, list_parents, own_memory
from crushpy.tools.errors import ToolError
from crushpy.tools.files.text_file import read_regular
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.shell.process import Process
from crushpy.util.pending_answers import PendingAnswers
from crushpy.util.spawn import spawn

MAX_MESSAGE_BYTES = 64_000_000
NO_PROTOCOL = "it does not speak the protocol"
MAX_STARTS = 2
"""If it has ended so often, also for lack of memory, it is off."""
START_TIMEOUT_S, DIAGNOSTICS_TIMEOUT_S, REQUEST_TIMEOUT_S, EXIT_TIMEOUT_S = 60.0, 60.0, 30.0, 1.0
SETTLE_S, PULLS = 0.3, 3
"""Silence after which diagnostics that name no version count; how often it is asked for diagnostics."""
_LENGTH = re.compile(rb"(?i)content-length: *(\d{1,9})\r\n")
_LANGUAGES = {"py": "python", "pyi": "python", "rs": "rust", "ts": "typescript", "js": "javascript"}
_REACT = {"tsx": "typescriptreact", "jsx": "javascriptreact"}
_CAPABILITIES = {"textDocument": {"publishDiagnostics": {"versionSupport": True}, "diagnostic": {}}}


class Diagnostic(msgspec.Struct, frozen=True):
    range: dict[str, dict[str, int]]
    message: str
    severity: int | None = 1
    code: int | str | None = None
    source: str | None = None

    @property
    def line(self) -> int:
        return self.range.get("start", {}).get("line", 0)


class OpenDocument(msgspec.Struct):
    text: str
    version: int
    diagnostics: list[Diagnostic] | None = None
    unconfirmed: list[Diagnostic] | None = None
    """The last ones that name no version."""


def read_source(path: str) -> str:
    return read_regular(Path(path), path).decode(errors="replace")


def path_of(uri: str) -> str:
    return unquote(urlsplit(uri).path)


class _Stream(Output):
    def __init__(self) -> None:
        super().__init__(None)
        self.reader = asyncio.StreamReader()

    def feed(self, data: bytes, final: bool = False) -> None:
        self.reader.feed_eof() if final else self.reader.feed_data(data)


class LanguageServer:
    """Started when it is used, stopped when it is idle, off if it keeps failing.

    Methods raise ToolError if it does not do what they ask, and ConnectionError if it has ended.
    """

    def __init__(
        self,
        endings: Sequence[str],
        command: Sequence[str],
        root: Path,
        idle_s: float,
        new_jobs: Callable[[], Jobs],
        emit: Callable[[Notice], None],
    ) -> None:
        """`endings`: of the files that it is for."""
        self.name, self.endings, self._command, self._root = Path(command[0]).name, endings, command, root
        self._idle_s, self._new_jobs, self._emit = idle_s, new_jobs, emit
        self._numbers = count(1)
        self._pending = PendingAnswers[Any]()
        """Open requests, and versions of files whose diagnostics are not known, by number."""
        self._documents: dict[str, OpenDocument] = {}
        self._names_versions = False
        self._locks = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self.log, self.capabilities = Output(None), dict[str, Any]()
        self._opening: asyncio.Task[None] | None = None
        self._jobs: Jobs | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ended = 0
        self.off = ""
        """Why it is not started again."""

    @property
    def state(self) -> str:
        """Whether it runs, and how much memory it uses, in words."""
        if self._jobs is None:
            return f"off: {self.off}" if self.off else "not running"
        supervisors = [supervisor.pid for supervisor in self._jobs.confinement.supervisors]
        used = sum(map(own_memory, descendants(supervisors, list_parents())))
        return f"{'running' if self.capabilities else 'starting'}, {used // 1_000_000} MB"

    async def start(self) -> None:
        """Returns once it is ready."""
        if self.off:
            raise ToolError(f"{self.name} is off: {self.off}")
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, lambda: spawn(self.stop()))
        if self._opening is None:
            self._opening = spawn(self._open())
            # The callers may have given up by then: that it failed is in the log.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        jobs = self._jobs = self._new_jobs()
        self.capabilities, stream, (reading, writing) = {}, _Stream(), os.pipe()
        loop, pipe = asyncio.get_running_loop(), os.fdopen(writing, "wb")
        self._pipe = (await loop.connect_write_pipe(asyncio.BaseProtocol, pipe))[0]
        try:
            if not (sandbox := jobs.confinement.sandbox).on:
                raise ToolError(f"it runs only in a sandbox, and there is none ({sandbox.why_not})")
            await jobs.confinement.warm_up()
            command = f"exec {shlex.join(self._command)}"
            process = jobs.run(command, self._root, stream, streams=(self.log, reading))
            self._serving = spawn(self._serve(jobs, process, stream.reader))
            uri = self._root.as_uri()
            params: Json = {"processId": None, "rootUri": uri, "capabilities": _CAPABILITIES}
            params["workspaceFolders"] = [{"uri": uri, "name": self._root.name}]
            answer = await self.request("initialize", params, START_TIMEOUT_S)
            self.capabilities = {"started": True, **answer["capabilities"]}
            self._notify("initialized", {})
        except (ToolError, OSError, LookupError, TypeError) as error:
            why = str(error) if isinstance(error, ToolError | OSError) else NO_PROTOCOL
            await self._end(jobs, why)
            raise ConnectionError(f"{self.name} did not start: {why}") from None
        finally:
            os.close(reading)

    async def _serve(self, jobs: Jobs, process: Process, stream: asyncio.StreamReader) -> None:
        why = NO_PROTOCOL
        try:
            while length := _LENGTH.search(await stream.readuntil(b"\r\n\r\n")):
                if int(length[1]) > MAX_MESSAGE_BYTES:
                    break
                self._handle(await stream.readexactly(int(length[1])))
        except (asyncio.LimitOverrunError, ConnectionError):
            pass
        except EOFError:
            await process.wait(EXIT_TIMEOUT_S)
            how = process.signal_name or f"exit code {process.exit_code}"
            why = process.trouble.replace("sandbox.", "lsp.") or f"it ended with {how}"
        await self._end(jobs, why)

    async def _end(self, jobs: Jobs, why: str) -> None:
        """Ends the process; what waits for an answer fails. `why` is empty if that was asked for."""
        if self._jobs is not jobs:
            return  # it has ended already
        self._jobs = self._opening = None
        if not self._pipe.is_closing():
            self._pipe.abort()
        self._pending.settle_all(ConnectionError(f"{self.name} has ended: {why}"))
        self._documents = {}
        self._ended += bool(why)
        if why and (self._ended == MAX_STARTS or not jobs.confinement.sandbox.on):
            self.off = why
            text = f"The language server {self.name} is off: {why}. /lsp shows its log."
            self._emit(Notice(text, "warning"))
        await jobs.close()

    async def stop(self) -> None:
        """Ends it; the next use starts it again."""
        if self._idle is not None:
            self._idle.cancel()
        if self._jobs is not None:
            await self._end(self._jobs, "")

    async def restart(self) -> None:
        """Ends it if it runs, and starts it, also if it was off."""
        await self.stop()
        self.off, self._ended = "", 0
        await self.start()

    # --- messages -----------------------------------------------------------------------------------------

    def _send(self, message: Json) -> None:
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        if self._jobs is None or self._pipe.get_write_buffer_size() > MAX_MESSAGE_BYTES:
            raise ConnectionError(f"{self.name} has ended, or does not read what it is sent")
        self._pipe.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def _notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Json, limit_s: float = REQUEST_TIMEOUT_S) -> Any:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        return await self._answer(number, limit_s)

    async def _answer(self, number: int, limit_s: float) -> Any:
        try:
            async with asyncio.timeout(limit_s):
                return await self._pending.wait(number)
        except TimeoutError:
            raise ToolError(f"{self.name} did not answer within {limit_s:g} s") from None

    def _handle(self, body: bytes) -> None:
        """What is about an old version of a file is ignored, and what cannot be read is logged."""
        try:
            message = msgspec.json.decode(body, type=dict[str, Any])
            method, params = str(message.get("method", "")), cast("Json", message.get("params") or {})
            if method == "textDocument/publishDiagnostics":
                document, version = self._documents[path_of(params["uri"])], params.get("version")
                self._names_versions |= version is not None
                if version == document.version or not self._names_versions:
                    found = document.unconfirmed = msgspec.convert(params["diagnostics"], list[Diagnostic])
                    if not self._names_versions:
                        spawn(self._confirm(document, found))
                        return
                    document.diagnostics = found
                    self._pending.settle(document.version, found)
            elif method and "id" in message:  # nothing that it asks for is granted
                result = [None] * len(params["items"]) if method == "workspace/configuration" else None
                self._send({"id": message["id"], "result": result})
            elif method.startswith("window/"):
                self.log.feed(f"{params.get('message')}\n".encode(errors="replace"))
            elif not method:
                result = message.get("result")
                if error := message.get("error"):
                    said = cast("Json", error).get("message") if isinstance(error, dict) else error
                    result = ToolError(f"{self.name}: {said}")
                self._pending.settle(message["id"], result)
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self.log.feed(f"A message that cannot be read: {error!r}\n".encode(errors="replace"))

    async def _confirm(self, document: OpenDocument, found: list[Diagnostic]) -> None:
        """Diagnostics that name no version may be about an earlier text. They count if no others follow for
        some time after the server has answered a request, and so has read all that precedes it."""
        with suppress(ToolError, ConnectionError):  # that it is refused is an answer
            await self.request("$/crushpy/sync", {}, DIAGNOSTICS_TIMEOUT_S)
        await asyncio.sleep(SETTLE_S)
        if document.unconfirmed is found and not self._names_versions:
            document.diagnostics = found
            self._pending.settle(document.version, found)

    @asynccontextmanager
    async def ready_for(self, path: str) -> AsyncGenerator[None]:
        """Keeps a file for one use at a time; the server knows the others as they are on disk."""
        await self.start()
        unused = [each for each in self._documents if each != path and not self._locks[each].locked()]
        for other in unused:
            async with self._locks[other]:
                try:
                    text = await asyncio.to_thread(read_source, other)
                    if other in self._documents and text != self._documents[other].text:
                        self.show(other, text)
                except (OSError, ToolError):
                    self._documents.pop(other, None)
                    self._notify("textDocument/didClose", {"textDocument": {"uri": Path(other).as_uri()}})
        async with self._locks[path]:
            yield

    def show(self, path: str, text: str) -> int:
        """Makes this the text of a file; returns its new version."""
        known, version = self._documents.get(path), next(self._numbers)
        shown: Json = {"uri": Path(path).as_uri(), "version": version}
        self._documents[path] = OpenDocument(text, version)
        if known is not None:
            # A server that knows the text would not say anything about it.
            texts = (f"{text}\n", text) if known.text == text else (text,)
            changes = [{"text": each} for each in texts]
            self._notify("textDocument/didChange", {"textDocument": shown, "contentChanges": changes})
        else:
            suffix = Path(path).suffix[1:]
            opened = shown | {"languageId": (_LANGUAGES | _REACT).get(suffix, suffix), "text": text}
            self._notify("textDocument/didOpen", {"textDocument": opened})
        return version

    async def diagnose(
        self, path: str, before: str | None, text: str
    ) -> tuple[Sequence[Diagnostic], Sequence[Diagnostic]]:
        """What it says about two texts of a file, of which the first may be missing."""
        async with self.ready_for(path):
            known = self._documents.get(path)
            old = known.diagnostics if known and known.text == before else None
            if old is None and before is not None:
                old = await self._problems(path, before)
            return old or (), await self._problems(path, text)

    async def _problems(self, path: str, text: str) -> Sequence[Diagnostic]:
        """What it says about this text: when it is asked, or by itself if it cannot be asked."""
        version = self.show(path, text)
        if not self.capabilities.get("diagnosticProvider"):
            return await self._answer(version, DIAGNOSTICS_TIMEOUT_S)
        params: Json = {"textDocument": {"uri": Path(path).as_uri()}}
        problem: Exception | None = None
        for _ in range(PULLS):  # it also refuses if anything changes meanwhile
            try:
                answer = await self.request("textDocument/diagnostic", params, DIAGNOSTICS_TIMEOUT_S / PULLS)
                found = self._documents[path].diagnostics = msgspec.convert(answer["items"], list[Diagnostic])
                return found
            except (ToolError, msgspec.MsgspecError, LookupError, TypeError) as error:
                problem = error
                await asyncio.sleep(SETTLE_S)
        raise ToolError(f"{self.name} does not answer: {problem}")
