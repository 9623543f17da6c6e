"""Calls in a row that only read fold into one line, which stands before them: what it tells and hides."""

from collections.abc import Iterable, Iterator, Sequence

from crushpy.tui.items import ReadingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.item_state import ItemState

_READING = {"view": "files", "ls": "folders", "glob": "searches", "grep": "searches"}
Entries = Sequence[ItemState | None]
MOST_IN_A_RUN = 50
"""Calls that one line tells: whenever one of them changes, all are looked at."""


def is_reading(item: TranscriptItem) -> bool:
    """A call of a tool that only looks at files."""
    return isinstance(item, ToolItem) and item.name in _READING


def run_at_end(entries: Entries) -> int | None:
    """Where the line of the run is that a call which comes now would belong to."""
    last = entries[-1] if entries else None
    if last is None or last.run is None or len(entries) - last.run > MOST_IN_A_RUN:
        return None
    return last.run


def end_run(entries: Entries, index: int) -> None:
    """An entry is gone: what follows it in its run is no longer told by its line."""
    for later in range(index + 1, len(entries)):
        entry = entries[later]
        if entry is None or entry.run is None or entry.run > index:
            return
        entry.run = None


def gather(entries: Entries, header: int) -> tuple[ReadingItem, list[int]]:
    """What the line tells now, and the entries that are seen, or not, other than before."""
    line = entries[header]
    assert line is not None
    members = list(_members(entries, header))
    told = {index for index, entry in members if _folds(entry.item)}
    together = len(told) > 1
    changed: list[int] = []
    for index, entry in ((header, line), *members):
        hidden = not together if entry is line else together and index in told and not line.opened
        if entry.hidden != hidden:
            entry.hidden = hidden
            changed.append(index)
    return _line(entry.item for index, entry in members if index in told), changed


def _members(entries: Entries, header: int) -> Iterator[tuple[int, ItemState]]:
    for index in range(header + 1, len(entries)):
        entry = entries[index]
        if entry is None or not is_reading(entry.item):
            return
        yield index, entry


def _folds(item: TranscriptItem) -> bool:
    """It went as it should: nothing about it needs to be seen by itself."""
    return isinstance(item, ToolItem) and item.state == "done" and not item.answer and not item.sent


def _line(items: Iterable[TranscriptItem]) -> ReadingItem:
    counts = {"files": 0, "folders": 0, "searches": 0}
    for item in items:
        if isinstance(item, ToolItem):
            counts[_READING[item.name]] += 1
    return ReadingItem(**counts)
