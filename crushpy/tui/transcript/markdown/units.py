"""Where the units of a markdown text begin and end: the smallest parts that can be drawn for good."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from crushpy.tui.transcript.markdown.block import parse_blocks

if TYPE_CHECKING:
    from markdown_it.token import Token

TABLE_HEAD = 30
"""So many rows decide how wide a table's columns are; those that follow are drawn one by one."""


class Unit(NamedTuple):
    """Lines that are drawn together. `start` and `end` count in the text that was given."""

    kind: Literal["block", "item", "fence", "table", "rows"]
    start: int
    end: int
    tokens: "Sequence[Token]"
    joined: bool = False
    """An item of the same list as the unit before."""
    goes_on: bool = False
    """Rows of a table that began in a unit before."""

    def lines(self, lines: Sequence[str]) -> Sequence[str]:
        """Its own lines, without empty ones at the end."""
        end = self.end
        while end > self.start + 1 and is_blank(lines[end - 1]):
            end -= 1
        return lines[self.start : end]


def units_of(lines: Sequence[str], *, joined: bool, header: Sequence[str] | None) -> list[Unit]:
    """The units of `lines`.

    `joined`: they begin with an item of the list that came before. `header`: they begin with a row of a table
    with that header.
    """
    extra = len(header) if header else 0
    tokens = parse_blocks("\n".join([*(header or ()), *lines, ""]))
    if extra:
        for token in tokens:
            token.map = [token.map[0] - extra, token.map[1] - extra] if token.map else None
    starts: list[Unit] = []
    for inside in _blocks(tokens, 0):
        match inside[0].type:
            case "bullet_list_open" | "ordered_list_open":
                for item in _blocks(inside[1:-1], 1):
                    starts.append(Unit("item", _line(item), 0, item, joined))
                    joined = True
            case "table_open":
                starts.extend(_table(inside, going_on=bool(extra) and not starts))
            case "fence":
                starts.append(Unit("fence", _line(inside), 0, inside))
            case _:
                starts.append(Unit("block", _line(inside), 0, inside))
        joined = False
    ends = [*(unit.start for unit in starts), len(lines)][1:]
    return [unit._replace(end=end) for unit, end in zip(starts, ends, strict=False)]


def is_blank(line: str) -> bool:
    """Empty, as markdown sees it."""
    return not line.strip(" \t")


def _blocks(tokens: "Sequence[Token]", level: int) -> "Iterator[Sequence[Token]]":
    """The tokens of each block at `level`."""
    start = 0
    for index, token in enumerate(tokens):
        if token.level == level and token.nesting <= 0:
            yield tokens[start : index + 1]
            start = index + 1


def _line(tokens: "Sequence[Token]") -> int:
    return tokens[0].map[0] if tokens[0].map else 0


def _table(tokens: "Sequence[Token]", *, going_on: bool) -> Iterator[Unit]:
    """The head of a table with its first rows, then all others but the last, then the last."""
    rows = [index for index, token in enumerate(tokens) if token.type == "tr_open"]
    if going_on:
        cuts = [rows[1]] if len(rows) < 3 else [rows[1], rows[-1]]
    elif len(rows) <= TABLE_HEAD + 1:
        cuts = [0]
    else:
        cuts = [0, *sorted({rows[TABLE_HEAD + 1], rows[-1]})]
    for start, end in zip(cuts, [*cuts[1:], len(tokens)], strict=True):
        inside = tokens[start:end]
        yield Unit("rows" if start else "table", _line(inside), 0, inside, goes_on=bool(start))
