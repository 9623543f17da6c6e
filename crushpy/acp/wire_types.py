"""What a client sends, as structs."""

from typing import Any

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all parameters. Unknown fields are ignored, as the protocol demands."""


class SessionClientCapabilities(Wire, frozen=True):
    compaction: dict[str, Any] | None = None
    notices: dict[str, Any] | None = None


class AuthClientCapabilities(Wire, frozen=True):
    terminal: bool = False


class FilesClientCapabilities(Wire, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class FileText(Wire, frozen=True):
    content: str


class ClientCapabilities(Wire, frozen=True):
    fs: FilesClientCapabilities | None = None
    session: SessionClientCapabilities | None = None
    auth: AuthClientCapabilities | None = None


class InitializeParams(Wire, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None


class NamedValue(Wire, frozen=True):
    name: str
    value: str


class McpServerParams(Wire, frozen=True):
    name: str
    command: str = ""
    args: list[str] = []
    env: list[NamedValue] = []
    url: str = ""
    headers: list[NamedValue] = []


class OpenSessionParams(Wire, frozen=True):
    cwd: str
    session_id: str = ""
    mcp_servers: list[McpServerParams] | None = None


class ListSessionsParams(Wire, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class SessionParams(Wire, frozen=True):
    session_id: str


class ResourceContents(Wire, frozen=True):
    uri: str = ""
    text: str = ""


class ContentBlock(Wire, frozen=True):
    """One block of a prompt, of any type."""

    type: str
    text: str = ""
    data: str = ""
    uri: str | None = None
    resource: ResourceContents | None = None


class PromptParams(SessionParams, frozen=True):
    prompt: list[ContentBlock]


class SetModeParams(SessionParams, frozen=True):
    mode_id: str


class SetOptionParams(SessionParams, frozen=True):
    config_id: str
    value: str


class PermissionOutcome(Wire, frozen=True):
    outcome: str
    option_id: str = ""


class PermissionAnswer(Wire, frozen=True):
    outcome: PermissionOutcome
