"""What the demo does is written as plans: generators that ask for tools and are sent their results.

The demo keeps nothing between requests, so a plan is run again from its beginning each time and sent the
results that the messages already hold; what it asks for next is the next step. A plan must therefore
depend on nothing but its arguments and those results.
"""

from collections.abc import Generator, Sequence
from typing import Any

from crushpy.core.messages import Data, ToolResult

Results = tuple[ToolResult, ...]


class Ask(Data, frozen=True):
    """A call the demo wants to make."""

    name: str
    args: dict[str, Any]


class Step(Data, frozen=True):
    """One reply: some words, and the calls that go with them. Without calls the turn is over."""

    text: str
    calls: tuple[Ask, ...] = ()


class Ending(Data, frozen=True):
    """How a plan ended: in words for the user, and whether what was asked for was done."""

    text: str
    done: bool = True


Plan = Generator[Step, Results, Ending]


def ask(text: str, name: str, **args: Any) -> Step:
    """A step with one call."""
    return Step(text, (Ask(name, args),))


def replay(plan: Plan, history: Sequence[Results]) -> Step | Ending:
    """What the plan does after the results it already got."""
    try:
        step = next(plan)
        for results in history:
            step = plan.send(results)
    except StopIteration as end:
        ending: Ending = end.value
        return ending
    else:
        return step
    finally:
        plan.close()
