"""`sessions list`, as a table and as JSON, by the number of conversations of the folder."""

from benchmarks.scale.many_conversations import many_conversations
from benchmarks.scale.timed_command import crushpy

SIZES = "100,2k,20k"
AIM = "under 0.6 s"


def measure(conversations: int) -> dict[str, float]:
    with many_conversations(conversations) as (cwd, env):
        table, _ = crushpy("sessions", "list", cwd=cwd, env=env)
        data, _ = crushpy("sessions", "list", "--json", cwd=cwd, env=env)
    return {
        "s": table["s"],
        "s CPU": table["s CPU"],
        "json s": data["s"],
        "json s CPU": data["s CPU"],
        "json MB": data["MB"],
    }
