"""For tests of the file tools: a context, calling a tool as a model does, and a look at what it leaves."""

import os
from pathlib import Path

import msgspec
import pytest

from crushpy.tools.base import AnyTool, CallContext, CallingAgent, Outcome, Workspace
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import check_args
from crushpy.tools.shell.jobs import Jobs

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def lend(workspace: Path, agent: CallingAgent | None = None) -> CallContext:
    """A context whose memory is empty. File tools start no background jobs."""
    return CallContext(Workspace(workspace, workspace.parent / "outputs", Jobs()), agent or CallingAgent())


async def call(tool: AnyTool, context: CallContext, **args: object) -> Outcome:
    """Calls `tool` with what a model wrote. Whatever it gives back can be stored."""
    outcome = await tool.run(check_args(tool, args), CallContext(context.workspace, context.agent))
    msgspec.json.encode(outcome)
    return outcome


async def refused(tool: AnyTool, context: CallContext, **args: object) -> str:
    """The error that a call ends with."""
    with pytest.raises(ToolError) as error:
        await tool.run(check_args(tool, args), CallContext(context.workspace, context.agent))
    return str(error.value)


def knows(context: CallContext, path: Path) -> None:
    """As if the model had viewed `path`."""
    context.agent.memory.remember(path.resolve(), path.read_bytes())


def names(folder: Path) -> list[str]:
    """Everything in `folder`, so that a forgotten temporary file shows."""
    return sorted(os.listdir(folder))
