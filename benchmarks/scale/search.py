"""The first search of a database that nothing was indexed of, all of it indexed, and a search then."""

from benchmarks.scale.database import execute, server
from benchmarks.scale.many_conversations import many_conversations
from benchmarks.scale.timed_command import crushpy

SIZES = "100,2k,20k"
QUICK = "100,1k"
AIM = "under 1 s for what is indexed, the rest is said; index at most 1.5x the data"

_IN_FILE = (
    "SELECT (SELECT sum(length(block)) FROM message_words_data) "
    "+ (SELECT sum(length(block)) FROM message_parts_data)"
)
_ON_SERVER = "SELECT pg_total_relation_size('message_words') + pg_total_relation_size('word')"


def measure(conversations: int) -> dict[str, float]:
    words = ("sessions", "search", f"unique_{conversations}_3")
    with many_conversations(conversations) as (cwd, env):
        first, _ = crushpy(*words, cwd=cwd, env=env, may_fail=True)
        whole, _ = crushpy(*words, "--wait", cwd=cwd, env=env)
        later, found = crushpy(*words, cwd=cwd, env=env)
        if words[-1] not in found:
            raise RuntimeError(f"not found: {found}")
        data, index = _sizes(env)
    return {
        "first s": first["s"],
        "first s CPU": first["s CPU"],
        "indexing s CPU": whole["s CPU"],
        "later s": later["s"],
        "later s CPU": later["s CPU"],
        "index/data": index / data,
    }


def _sizes(env: dict[str, str]) -> tuple[float, float]:
    """Bytes of the messages' own text, and of the tables of the index."""
    (data,) = execute(env, "SELECT sum(length(parts)) FROM message")[0]
    (index,) = execute(env, _ON_SERVER if server() else _IN_FILE)[0]
    return float(data), float(index)
