"""Helpers of the provider tests: making requests and reading whole replies."""

from collections.abc import Sequence

from crushpy.core.messages import Json, Message, Text
from crushpy.llm.protocol import (
    CallPiece,
    Done,
    Piece,
    Provider,
    Request,
    Sent,
    TextPiece,
    ThinkingOpaque,
    ThinkingPiece,
    ToolSpec,
)

LS = ToolSpec("ls", "Lists a folder.", {"type": "object", "properties": {"path": {"type": "string"}}})


def user(text: str, number: int = 1) -> Message:
    return Message(id=f"u{number}", role="user", parts=(Text(text),))


def ask(
    text: str = "hi",
    *,
    model: str = "openai/test",
    messages: Sequence[Message] = (),
    system: str = "You are terse.",
    tools: tuple[ToolSpec, ...] = (LS,),
    max_output_tokens: int | None = None,
    effort: str = "",
    status: str = "",
    status_placement: str = "message",
) -> Request:
    return Request(
        model=model,
        system=system,
        messages=tuple(messages) or (user(text),),
        tools=tools,
        max_output_tokens=max_output_tokens,
        effort=effort,
        status=status,
        status_placement=status_placement,
    )


class Heard:
    """A whole stream, put together the way the engine does."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        self.thinking = "".join(piece.text for piece in pieces if isinstance(piece, ThinkingPiece))
        self.opaque: list[Json] = [piece.data for piece in pieces if isinstance(piece, ThinkingOpaque)]
        self.done = next((piece for piece in pieces if isinstance(piece, Done)), None)

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """(id, name, arguments) of each call, in order."""
        by_index: dict[int, list[CallPiece]] = {}
        for piece in self.pieces:
            if isinstance(piece, CallPiece):
                by_index.setdefault(piece.index, []).append(piece)
        return [
            (
                next((p.id for p in by_index[index] if p.id), ""),
                "".join(p.name for p in by_index[index]),
                "".join(p.args for p in by_index[index]),
            )
            for index in sorted(by_index)
        ]


async def hear(provider: Provider, request: Request | None = None) -> Heard:
    """The whole stream; also checks what holds for every complete one."""
    pieces = [piece async for piece in provider.stream(request or ask())]
    assert [type(p) for p in pieces].count(Sent) == 1
    assert isinstance(pieces[0], Sent)
    assert [type(p) for p in pieces].count(Done) == 1
    assert isinstance(pieces[-1], Done)
    return Heard(pieces)
