"""`--continue` by the number of conversations of the folder: how long until the first request arrives, and in
the app, until the last words are on the screen."""

import time
from typing import Any

from scripted_llm.replies import Answer

from benchmarks.scale.app_keys import WatchedApp
from benchmarks.scale.long_history import Stepper, served
from benchmarks.scale.many_conversations import many_conversations
from benchmarks.scale.timed_command import crushpy

SIZES = "100,2k,20k"
AIM = "under 0.6 s"


class Listener(Stepper):
    """Answers at once, and knows when it was asked."""

    def __init__(self) -> None:
        super().__init__(0, 1_000)
        self.at = 0.0

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.at = time.monotonic()
        return super().__call__(body)


def measure(conversations: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with many_conversations(conversations) as (cwd, env):
        for name, words in (("new", ("run",)), ("continued", ("run", "--continue"))):
            model = Listener()
            with served(model) as llm:
                started = time.monotonic()
                used, _ = crushpy(*words, "Hello.", cwd=cwd, env={**env, **llm.env})
            found |= {f"{name} asks s": model.at - started, f"{name} s CPU": used["s CPU"]}
        started = time.monotonic()
        with WatchedApp("--continue", cwd=cwd, env=env, columns=120, rows=40) as app:
            app.wait_for("unique_", "openai/bench")
            found |= {"app shows s": time.monotonic() - started, "app s CPU": app.cpu()}
    return found
