"""`view` of 20 lines of a file by its megabytes, once and five times in one reply: the memory it takes."""

from typing import Any

from scripted_llm.replies import Answer, Call, Reply

from benchmarks.scale.long_history import Stepper, served, stored_history
from benchmarks.scale.timed_command import crushpy

SIZES = "1,10,49"
QUICK = "1,10"
AIM = "constant"


class Viewer(Stepper):
    """Looks at so many places of the file at once, then stops."""

    def __init__(self, times: int, lines: int) -> None:
        super().__init__(0, 1_000)
        self._places = [1 + lines // times * number for number in range(times)]

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.asked += 1
        if self.asked > 1:
            return super().__call__(body)
        return Reply(
            "I look.",
            calls=[
                Call("view", {"file_path": "large.txt", "offset": at, "limit": 20}) for at in self._places
            ],
        )


def measure(megabytes: int) -> dict[str, float]:
    found: dict[str, float] = {}
    line = "x" * 99 + "\n"
    lines = megabytes * 1_000_000 // len(line)
    with stored_history(1_000) as (cwd, env):
        with (cwd / "large.txt").open("w") as file:
            for _ in range(megabytes):
                file.write(line * (1_000_000 // len(line)))
        for name, times in (("once", 1), ("five", 5)):
            with served(Viewer(times, lines - 20)) as llm:
                used, _ = crushpy("run", "--yolo", "Look.", cwd=cwd, env={**env, **llm.env})
            found |= {f"{name} MB": used["MB"], f"{name} s CPU": used["s CPU"]}
    return found
