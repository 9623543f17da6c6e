"""Fills the window on purpose, so that the gauge and a fresh start can be seen within a minute."""

from crushpy.llm.demo.plans import TEXT_FILES, paths_in
from crushpy.llm.demo.situation import Situation
from crushpy.llm.demo.steps import Ask, Ending, Plan, Step

MOST_STEPS = 40
_LINES = 60
"""Lines of text the demo writes in one step: about a thirtieth of its window."""
_READ = 200
"""Lines of a file it reads in one step, while there are files it has not read."""
_NEARLY_FULL = 0.93
"""Where filling stops by itself: above every threshold, below an overflow."""


def fill(situation: Situation, steps: int = MOST_STEPS, overflow: bool = False) -> Plan:
    """Writes and reads a lot, step after step, until the window is full, or beyond with `overflow`."""
    files: list[str] = []
    call = Ask("glob", {"pattern": TEXT_FILES})
    for number in range(1, steps + 1):
        if situation.fullness >= _NEARLY_FULL and not overflow:
            return Ending(
                f"The window is {situation.fullness:.0%} full and no fresh start came, so I stop here. "
                "The next large step would overflow it; say `overflow the window` to see that too."
            )
        text = f"Step {number} of {steps}, about {situation.fullness:.0%} full.\n\n{_pour(number)}"
        (result,) = yield Step(text, (call,))
        if number == 1 and not result.is_error:
            files = paths_in(result.text)
        # No call comes twice: the same one over and over would be stopped, and rightly so.
        if files:
            call = Ask("view", {"file_path": files.pop(0), "limit": _READ})
        else:
            call = Ask("grep", {"pattern": f"crushpy tour, step {number + 1}$"})
    return Ending(f"I took {steps} steps and stop here, at about {situation.fullness:.0%} of the window.")


def _pour(number: int) -> str:
    return "\n".join(
        f"{number}.{line} This line says nothing; it is here to take up room in the window."
        for line in range(1, _LINES + 1)
    )
