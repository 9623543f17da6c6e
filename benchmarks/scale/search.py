"""The first search of a database that nothing was indexed of, all of it indexed, and a search then."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.scale.many_conversations import many_conversations
from benchmarks.scale.timed_command import crushpy

SIZES = "100,2k,20k"
QUICK = "100,1k"
AIM = "under 1 s for what is indexed, the rest is said; index at most 1.5x the data"


def measure(conversations: int) -> dict[str, float]:
    words = ("sessions", "search", f"unique_{conversations}_3")
    with many_conversations(conversations) as (cwd, env):
        first, _ = crushpy(*words, cwd=cwd, env=env, may_fail=True)
        whole, _ = crushpy(*words, "--wait", cwd=cwd, env=env)
        later, found = crushpy(*words, cwd=cwd, env=env)
        if words[-1] not in found:
            raise RuntimeError(f"not found: {found}")
        data, index = _sizes(Path(env["CRUSHPY_HOME"]) / "crushpy.db")
    return {
        "first s": first["s"],
        "first s CPU": first["s CPU"],
        "indexing s CPU": whole["s CPU"],
        "later s": later["s"],
        "later s CPU": later["s CPU"],
        "index/data": index / data,
    }


def _sizes(file: Path) -> tuple[float, float]:
    """Bytes of the messages' own text, and of the tables of the index."""
    with closing(sqlite3.connect(file)) as db:
        data: int = db.execute("SELECT sum(length(parts)) FROM message").fetchone()[0]
        index: int = db.execute(
            "SELECT (SELECT sum(length(block)) FROM message_words_data) "
            "+ (SELECT sum(length(block)) FROM message_parts_data)"
        ).fetchone()[0]
    return data, index
