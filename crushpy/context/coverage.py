"""How much of what happened is still there after a boundary: an exact match, fact by fact."""

from collections.abc import Sequence

from crushpy.context import facts
from crushpy.messages import Data, Message

KINDS = ("paths", "commands", "failures", "todos", "requests")
LONG = 300
"""A fact longer than this is looked for by its beginning: that is what a shortened quote keeps."""


class Found(Data, frozen=True):
    """Of `total` facts, how many the prose alone carries, and how many prose and evidence together."""

    total: int
    prose: int
    carried: int


class Coverage(Data, frozen=True):
    by_kind: dict[str, Found]

    @property
    def total(self) -> int:
        return sum(found.total for found in self.by_kind.values())

    @property
    def prose_share(self) -> float | None:
        return _share(sum(found.prose for found in self.by_kind.values()), self.total)

    @property
    def share(self) -> float | None:
        """None where there was nothing to carry."""
        return _share(sum(found.carried for found in self.by_kind.values()), self.total)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def facts_of(messages: Sequence[Message]) -> dict[str, list[str]]:
    """The facts of some messages, by kind, each once."""
    ran = facts.commands(messages)
    found = {
        "paths": [file.path for file in facts.touched(messages)],
        "commands": [command.text for command in ran],
        "failures": [command.text for command in ran if command.failed],
        "todos": [todo.text for todo in facts.open_todos(facts.todos(messages))],
        "requests": [request.text for request in facts.requests(messages)],
    }
    return {kind: list(dict.fromkeys(values)) for kind, values in found.items()}


def covered(fact: str, carried: str) -> bool:
    """True where `carried` (see `flat`) holds the fact word for word; white space may differ."""
    return flat(fact)[:LONG] in carried


def flat(text: str) -> str:
    return " ".join(text.replace(" ⏎ ", " ").replace("&lt;", "<").split())


def measure(middle: Sequence[Message], prose: str, carried: str) -> Coverage:
    """Coverage of the facts in `middle`: by the summary's prose, and by all that was carried over."""
    flat_prose, flat_all = flat(prose), flat(carried)
    return Coverage(
        {
            kind: Found(
                len(values),
                sum(covered(value, flat_prose) for value in values),
                sum(covered(value, flat_all) for value in values),
            )
            for kind, values in facts_of(middle).items()
        }
    )
