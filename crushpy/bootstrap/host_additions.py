"""What a program that embeds crushpy adds to a conversation."""

from collections.abc import Callable, Mapping

import msgspec

from crushpy.engine.hooks import Hooks
from crushpy.llm.protocol import Provider
from crushpy.tools.base import AnyTool
from crushpy.tools.files.workspace_files import WorkspaceFiles


class HostAdditions(msgspec.Struct, frozen=True):
    """Without any, a conversation is as in the command line."""

    tools: tuple[AnyTool, ...] = ()
    providers: Mapping[str, Provider] = {}
    """By the name of their model."""
    offers: Callable[[AnyTool], bool] = lambda _: True
    """Which tools the model gets."""
    files: WorkspaceFiles | None = None
    """How the tools read and write files; None: on disk."""
    answers: bool = False
    """The program answers approvals."""
    wrap_hooks: Callable[[Hooks], Hooks] = lambda hooks: hooks
    """Gets the hooks of the settings and returns those to use."""
