"""The client for MCP's conformance suite: crushpy's own process for MCP servers, as users drive it.

The suite starts it for each scenario with the address of its server; docs/mcp.md has the command. A person is
simulated: pages are opened, forms are sent as they are filled in, and `needs login` leads to a login.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.mcp_connection import connect

from crushpy.core.messages import Json
from crushpy.extensions.mcp.definitions import read_definitions
from crushpy.extensions.mcp.mcp_process import McpError, McpProcess
from crushpy.extensions.mcp.wire import McpOrder, McpReport, ServerSpec
from crushpy.settings.schema import McpOAuth, McpTools

MAX_LOGINS = 2
KNOWN_ARGUMENTS = {"a": 2, "b": 3}
DOCUMENT = "https://conformance-test.local/client-metadata.json"


class Person:
    """Uses one server through the process."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.process = McpProcess()
        self.logins = 0

    def heard(self, report: McpReport) -> None:
        if report.kind == "open":
            threading.Thread(target=_open, args=(report.data["url"],), daemon=True).start()
        elif report.kind == "elicit":
            schema: Json = report.data.get("requestedSchema") or {}
            fields: dict[str, Json] = schema.get("properties") or {}
            content = {name: _fill(field) for name, field in fields.items()}
            answer = {"action": "accept", "content": content}
            self.process.send(McpOrder("answer", arguments=answer, id=int(report.data["question"])))

    async def connect(self) -> Json:
        try:
            return (await connect(self.process, self.spec, "server", self.heard))[1]
        except McpError as error:
            await self.log_in(error)
            return await self.connect()

    async def log_in(self, error: McpError) -> None:
        if not error.needs_login or self.logins == MAX_LOGINS:
            raise error
        self.logins += 1
        await self.process.carry_out(McpOrder("login", "server", spec=self.spec), self.heard)

    async def call(self, tool: str, arguments: Json) -> Json:
        try:
            return await self.process.carry_out(McpOrder("call", "server", tool, arguments), self.heard)
        except McpError as error:
            await self.log_in(error)
            await self.connect()
            return await self.call(tool, arguments)


def _open(page: str) -> None:
    with suppress(OSError), urllib.request.urlopen(page, timeout=10) as opened:
        opened.read()


def _fill(field: Json) -> Any:
    examples = {"boolean": True, "integer": 1, "number": 1.5}
    return field.get("default", examples.get(str(field.get("type")), "text"))


async def main(url: str) -> None:
    context: Json = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "PYTHONPATH": str(Path(__file__).parents[1] / "tests" / "support"),
            "PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring",
            "KEYRING_PROPERTY_FILE": f"{folder}/keyring.json",
        }
        oauth = McpOAuth(client_id=context.get("client_id", ""), client_metadata_url=DOCUMENT)
        more = {"client_secret": context.get("client_secret", ""), "private_hosts": True, "locks": folder}
        person = Person(ServerSpec(url=url, oauth=oauth, timeout=20, **more))
        data = await person.connect()
        tools, _ = read_definitions("server", data.get("tools", ()), McpTools())
        schemas = {tool.name: tool.schema for tool in tools}
        calls: list[Json] = context.get("toolCalls") or [{"name": name} for name in schemas]
        for call in calls:
            arguments = call.get("arguments") or _arguments(schemas, str(call["name"]))
            try:
                await person.call(str(call["name"]), arguments)
            except McpError as error:
                print(error, file=sys.stderr)
        person.process.end()


def _arguments(schemas: dict[str, Json], tool: str) -> Json:
    if tool == "json_schema_echo":
        return {"schema": schemas["json_schema_2020_12_tool"]}
    schema: Json = schemas.get(tool) or {}
    fields: dict[str, Json] = schema.get("properties") or {}
    return {name: KNOWN_ARGUMENTS.get(name, _fill(field)) for name, field in fields.items()}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
