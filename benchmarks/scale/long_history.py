"""A stored conversation of a given size, and a model that goes on with it step by step."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.scale.database import fresh_database, store_of
from crushpy.core.messages import Message, Text, ToolCall, ToolResult, Usage
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

MODEL = "openai/bench"
TOKENS_A_RESULT = 300
LINES = "".join(
    f"{number:>5}\tdef handler_{number}(request, context): return {number}\n" for number in range(18)
)


def history(tokens: int) -> list[Message]:
    """Prompts, replies with a call each, and their results: about so many tokens."""
    messages: list[Message] = [_message(0, "user", Text("Look at all files."))]
    for number in range(1, max(2, tokens // TOKENS_A_RESULT)):
        call = ToolCall(f"call_{number}", "view", {"file_path": f"src/file_{number}.py"})
        messages.append(_message(3 * number, "assistant", Text("Now the next one."), call))
        result = ToolResult(call.id, "view", LINES)
        messages.append(_message(3 * number + 1, "tool", result, tokens=TOKENS_A_RESULT))
    messages.append(_message(-1, "assistant", Text("That is all.")))
    return messages


def _message(number: int, role: Any, *parts: Any, tokens: int = 20) -> Message:
    model = MODEL if role == "assistant" else ""
    return Message(f"m{number:011}", role, parts, time.time(), model, None, "", tokens)


async def _fill(store: Store, cwd: Path, tokens: int) -> None:
    now = time.time()
    info = SessionInfo(
        "long00000000",
        "long00000000",
        None,
        "root",
        0,
        "long",
        str(cwd),
        MODEL,
        "auto",
        "Be brief.",
        now,
        now,
    )
    first, *others = history(tokens)
    await store.sessions.create(info, first)
    for message in others:
        await store.messages.add(info.id, message)
    while await store.run_maintenance():  # a conversation that grew by itself is indexed
        pass
    await store.close()


@contextmanager
def stored_history(tokens: int) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with a conversation of so many tokens, and the environment that finds it."""
    with TemporaryDirectory(prefix="scale-") as top, fresh_database() as where:
        home, cwd = Path(top) / "home", Path(top) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        (cwd / "a.txt").write_text("".join(f"line {number}\n" for number in range(2_000)))
        (home / "config.toml").write_text(
            f'model = "{MODEL}"\nsmall_model = "demo/tour"\n[models."{MODEL}"]\ncontext_window = 100000000\n'
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY")}
        env |= {"CRUSHPY_HOME": str(home), "HOME": top, **where}
        asyncio.run(_fill(store_of(env), cwd, tokens))
        yield cwd, env


class Stepper:
    """A model that looks at one line after the other, and then stops. `delay` before each reply."""

    def __init__(self, steps: int, tokens: int, delay: float = 0.0) -> None:
        self._steps = steps
        self._tokens = tokens
        self._delay = delay
        self.asked = 0

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.asked += 1
        usage = Usage(self._tokens + 100 * self.asked, 20)
        if self.asked > self._steps:
            return Reply("All done.", usage=usage, chunk=3, delay=self._delay)
        call = Call("view", {"file_path": "a.txt", "offset": self.asked, "limit": 3})
        return Reply("Next line.", calls=[call], usage=usage, chunk=100, delay=self._delay)


@contextmanager
def served(stepper: Stepper) -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        llm.always(stepper)
        yield llm
