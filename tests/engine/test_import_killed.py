"""An import that is killed leaves each conversation whole or not at all, and the next one completes it."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import support.foreign_files as foreign
from import_killer import bring
from support.killing import killed_at_every
from support.selection import thinned

from crushpy.storage.store import Store

HERE = Path(__file__).parent
LIVE = "IN (SELECT id FROM session WHERE kind != 'deleted')"
VISIBLE = {
    "session": f"id {LIVE}",
    "message": f"session_id {LIVE}",
    "boundary": f"parent_id {LIVE}",
    "import_record": f"root_id {LIVE}",
}
"""The rows of a replaced conversation are deleted later, in small steps."""
CLOCKS = {"imported_at", "heartbeat"}
LARGE = "a line of a long answer\n" * 50_000
"""Two of them are more than an import holds before it writes."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.sampled,
]


def state(file: Path) -> str:
    """Everything that was imported, with ordinals in place of random ids."""
    with closing(sqlite3.connect(file)) as rows:
        rows.row_factory = sqlite3.Row
        assert rows.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert rows.execute("PRAGMA foreign_key_check").fetchall() == []
        found: dict[str, list[dict[str, Any]]] = {
            table: [dict(row) for row in rows.execute(f"SELECT * FROM {table} WHERE {of} ORDER BY rowid")]
            for table, of in VISIBLE.items()
        }
    names = {row["id"] for table in ("session", "boundary") for row in found[table]}
    names |= {row["id"] for row in found["message"]}
    ordinals: dict[str, str] = {}
    text = json.dumps(
        [[{k: v for k, v in row.items() if k not in CLOCKS} for row in t] for t in found.values()]
    )
    for name in sorted(names, key=text.index):
        ordinals[name] = f"<{len(ordinals)}>"
    for name, ordinal in ordinals.items():
        text = text.replace(name, ordinal)
    return text


async def imported(file: Path, folder: Path) -> list[str]:
    store = Store(file)
    await store.sessions.list_tips()
    statuses = await bring(store, folder)
    assert await store.check() == [] and store.warnings == []
    await store.close()
    return statuses


def two_sessions(user: Path) -> tuple[Path, Path]:
    """A small one with a boundary in it, and a large one."""
    first = foreign.write_claude(user)
    lines = json.loads(
        json.dumps(foreign.claude_lines()).replace(foreign.CLAUDE_ID, "2" * 8 + foreign.CLAUDE_ID[8:])
    )
    long = [
        foreign.claude_reply(
            f"x{number}", "a4" if not number else f"x{number - 1}", 20 + number, foreign.words(LARGE)
        )
        for number in range(2)
    ]
    second = foreign.write_lines(first.with_name(f"{'2' * 8}{foreign.CLAUDE_ID[8:]}.jsonl"), [*lines, *long])
    return first, second


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("again", "how", "step"),
    [
        (False, "statements", 1),
        (False, "instructions", 199),
        (True, "statements", 2),
        (True, "instructions", 49),
    ],
)
async def test_an_import_killed_at_any_step_leaves_each_conversation_whole_or_not_at_all(
    tmp_path: Path, again: bool, how: str, step: int
) -> None:
    file = tmp_path / "data" / "crushpy.db"
    first, second = two_sessions(tmp_path / "user")
    folder = first.parent
    store = Store(file)
    await store.sessions.list_tips()
    await store.close()
    if again:  # the sessions went on there since they were imported
        assert await imported(file, folder) == ["imported", "imported"]
        for path in (first, second):
            path.write_text(path.read_text().removesuffix('{"type":"user","uu'))
            last = "a4" if path == first else "x1"
            foreign.append_lines(
                path,
                foreign.claude_said("n1", last, 40, "and on"),
                foreign.claude_reply("n2", "n1", 41, foreign.words("It goes on.")),
            )
    old = state(file)
    copies, whole = killed_at_every(HERE / "import_killer.py", file, str(folder), how, str(thinned(step)))
    new = state(whole)
    found = [state(copy) for copy in copies]
    between = {entry for entry in found if entry not in (old, new)}
    assert found[0] == old and len(between) == 1, "one conversation is there, the other is not"
    order = [old, *between, new]
    assert [order.index(entry) for entry in found] == sorted(order.index(entry) for entry in found)
    for copy in copies[:: max(1, len(copies) // 6)]:
        before = state(copy)
        done = "updated" if again else "imported"
        expected = {old: [done, done], new: ["unchanged", "unchanged"]}
        assert await imported(copy, folder) == expected.get(before, ["unchanged", done])
        assert state(copy) == new
        assert await imported(copy, folder) == ["unchanged", "unchanged"]
