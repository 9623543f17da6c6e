"""The rows of one item. Of a very long one most are kept packed, in a tenth of the room, until looked at.

A row that was packed comes back as another object that looks and copies the same.
"""

import marshal
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from rich.segment import Segment
from rich.style import Style

from crushpy.tui.transcript.render.text_row import TextRow

PAGE = 256
"""Rows that are packed together."""
LOOSE = 1_024
"""So many rows at the end are never packed: what grows, and what is seen of it."""
OPEN_PAGES = 4
"""Packed pages that are kept unpacked as well, those looked at last."""
PAGES_AT_A_TIME = 4
"""So many are packed in one go: a few milliseconds."""
PlainRow = tuple[int, str, int, list[tuple[str, int]]]
"""Gutter, end, number of the fill's style, and pieces of text with the numbers of theirs."""


class RowStore(Sequence[TextRow]):
    """A list as far as it is used here: rows are added and taken away at the end, and replaced anywhere."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._loose: list[TextRow] = []
        self._styles: list[Style] = []
        self._numbers: dict[Style, int] = {}
        self._open: OrderedDict[int, list[TextRow]] = OrderedDict()
        self._changed: set[int] = set()

    @property
    def packed(self) -> int:
        """How many rows are packed."""
        return len(self._packed) * PAGE

    @property
    def unpacked(self) -> int:
        """How many rows take the room that a row takes."""
        return len(self._loose) + sum(map(len, self._open.values()))

    def __len__(self) -> int:
        return len(self._packed) * PAGE + len(self._loose)

    def append(self, row: TextRow) -> None:
        self._loose.append(row)

    def extend(self, rows: Iterable[TextRow]) -> None:
        self._loose.extend(rows)

    @overload
    def __getitem__(self, place: int) -> TextRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[TextRow]: ...
    def __getitem__(self, place: int | slice) -> TextRow | list[TextRow]:
        if not self._packed:
            return self._loose[place]
        if isinstance(place, slice):
            start, stop, _ = place.indices(len(self))
            if start >= self.packed:
                return self._loose[start - self.packed : stop - self.packed]
            return [self[at] for at in range(start, stop)]
        at = place if place >= 0 else len(self) + place
        if at >= self.packed:
            return self._loose[at - self.packed]
        if at < 0:
            raise IndexError(place)
        return self._page(at // PAGE)[at % PAGE]

    def __iter__(self) -> Iterator[TextRow]:
        for number in range(len(self._packed)):
            # Whoever walks through all rows leaves the pages that are looked at as they are.
            yield from self._open.get(number) or self._unpacked(number)
        yield from self._loose

    @overload
    def __setitem__(self, place: int, row: TextRow) -> None: ...
    @overload
    def __setitem__(self, place: slice, row: Sequence[TextRow]) -> None: ...
    def __setitem__(self, place: int | slice, row: TextRow | Sequence[TextRow]) -> None:
        """A slice is replaced by as many rows."""
        start, stop, _ = (place if isinstance(place, slice) else slice(place, place + 1)).indices(len(self))
        rows = [row] if isinstance(row, TextRow) else row
        if len(rows) != stop - start:
            raise ValueError(f"{len(rows)} rows for {stop - start}")
        for at, one in enumerate(rows, start):
            if at >= self.packed:
                self._loose[at - self.packed] = one
            else:
                self._page(at // PAGE)[at % PAGE] = one
                self._changed.add(at // PAGE)

    def __delitem__(self, place: slice) -> None:
        """The rows from one on, of those at the end."""
        del self._loose[max(0, place.start - self.packed) :]

    def pack(self, settled: int) -> bool:
        """Packs rows that will not be taken away: the first `settled`. False where nothing is left to do."""
        ready = min(settled - self.packed, len(self._loose) - LOOSE) // PAGE
        for _ in range(min(ready, PAGES_AT_A_TIME)):
            self._packed.append(self._pack(self._loose[:PAGE]))
            del self._loose[:PAGE]
        return ready > PAGES_AT_A_TIME

    def _page(self, number: int) -> list[TextRow]:
        if number not in self._open:
            self._open[number] = self._unpacked(number)
            if len(self._open) > OPEN_PAGES:
                oldest, rows = self._open.popitem(last=False)
                if oldest in self._changed:
                    self._changed.discard(oldest)
                    self._packed[oldest] = self._pack(rows)
        self._open.move_to_end(number)
        return self._open[number]

    def _pack(self, rows: Sequence[TextRow]) -> bytes:
        number = self._number
        plain: list[PlainRow] = [
            (
                row.gutter,
                row.end,
                number(row.fill),
                [(segment.text, number(segment.style)) for segment in row.segments],
            )
            for row in rows
        ]
        return zlib.compress(marshal.dumps(plain), 1)

    def _unpacked(self, number: int) -> list[TextRow]:
        plain: list[PlainRow] = marshal.loads(zlib.decompress(self._packed[number]))  # noqa: S302  # our own
        styles = self._styles
        return [
            TextRow([Segment(text, styles[style]) for text, style in pieces], styles[fill], gutter, end)
            for gutter, end, fill, pieces in plain
        ]

    def _number(self, style: Style | None) -> int:
        style = style or Style.null()
        known = self._numbers.get(style)
        if known is None:
            known = self._numbers[style] = len(self._styles)
            self._styles.append(style)
        return known
