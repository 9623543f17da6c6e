"""What a program that embeds crushpy adds to a conversation."""

from collections.abc import Callable, Mapping

import msgspec

from crushpy.llm.protocol import Provider
from crushpy.tools.base import AnyTool


def offer_all(tool: AnyTool) -> bool:
    return True


class HostAdditions(msgspec.Struct, frozen=True):
    """Without any, a conversation is as in the command line."""

    tools: tuple[AnyTool, ...] = ()
    providers: Mapping[str, Provider] = {}
    """By the name of their model."""
    offers: Callable[[AnyTool], bool] = offer_all
    """Which tools the model gets."""
    answers: bool = False
    """The program answers approvals."""
