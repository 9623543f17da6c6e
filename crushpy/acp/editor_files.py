"""Files of the workspace as the editor has them, with what is not saved yet."""

import asyncio
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import msgspec

from crushpy.acp.client_connection import ClientConnection, RpcError
from crushpy.acp.wire_types import FilesClientCapabilities, FileText
from crushpy.core.messages import Json
from crushpy.tools.errors import ToolError
from crushpy.tools.files.text_file import decode, normalize
from crushpy.tools.files.workspace_files import WorkspaceFiles

ANSWER_TIMEOUT_S = 30.0


class EditorFiles(WorkspaceFiles):
    """Regular files of UTF-8 text in the workspace that are reached through no link; others are on disk."""

    def __init__(self, client: ClientConnection, capabilities: FilesClientCapabilities, cwd: Path) -> None:
        self.session = ""
        self._client, self._capabilities, self._cwd = client, capabilities, cwd
        self._loop = asyncio.get_running_loop()
        self._open: set[Future[Any]] = set()

    def read(self, path: Path, real: Path, shown: str) -> bytes:
        raw = super().read(path, real, shown)
        file = decode(raw)
        if not self._capabilities.read_text_file or not self._serves(path, real):
            return raw
        if file is None or file.bom or file.bad_bytes or file.encoding != "utf-8":
            return raw
        said = self._ask("fs/read_text_file", shown, {"path": str(real)})
        try:
            text = msgspec.convert(said, FileText).content
        except msgspec.ValidationError as error:
            raise ToolError(f"{shown} cannot be read: the editor's answer is invalid ({error}).") from None
        return raw if normalize(text) == normalize(file.text) else text.encode()

    def write(self, path: Path, real: Path, shown: str, content: bytes, before: bytes | None) -> str:
        file = decode(content)
        if not self._capabilities.write_text_file or not self._serves(path, real):
            return super().write(path, real, shown, content, before)
        if file is None or file.bom or file.bad_bytes or file.encoding != "utf-8":
            return super().write(path, real, shown, content, before)
        if before is not None and self.read(path, real, shown) != before:
            raise ToolError(f"{shown} was changed in the editor just now. View it again first.")
        self._ask("fs/write_text_file", shown, {"path": str(real), "content": file.text})
        try:
            written = super().read(path, real, shown)
        except OSError:
            written = None
        if written == content:
            return ""
        if written is None or written == before:
            raise ToolError(f"{shown} was given to the editor, which has not saved it.")
        return "the editor saved it with other content: view it again before you change it"

    def cancel(self) -> None:
        for answer in tuple(self._open):
            answer.cancel()

    def _serves(self, path: Path, real: Path) -> bool:
        return path == real and real.is_relative_to(self._cwd)

    def _ask(self, method: str, shown: str, params: Json) -> Any:
        """The editor's answer. An error of its own is an error here: the disk may hold something else."""
        request = self._client.request(method, {"sessionId": self.session, **params})
        answer = asyncio.run_coroutine_threadsafe(request, self._loop)
        self._open.add(answer)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except RpcError as error:
            raise ToolError(f"The editor refused {method} for {shown}: {error.message}") from None
        except CancelledError:
            raise ToolError(f"{method} for {shown} was cancelled.") from None
        except TimeoutError:
            answer.cancel()
            raise ToolError(f"The editor has not answered {method} for {shown}.") from None
        finally:
            self._open.discard(answer)
