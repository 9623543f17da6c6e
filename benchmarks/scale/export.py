"""Exports of one conversation by its size in kilobytes, as Markdown and as JSON, secrets redacted."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scale.database import fresh_database, store_of
from benchmarks.scale.long_history import MODEL
from benchmarks.scale.timed_command import crushpy
from crushpy.core.messages import Message, Text, ToolCall, ToolResult
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

SIZES = "1,1k,10k"
AIM = "0.1 s per MB, memory flat"
CHARS = 4_000
"""Of a tool result: source code of this very repository."""


def measure(kilobytes: int) -> dict[str, float]:
    with TemporaryDirectory(prefix="scale-") as top, fresh_database() as where:
        home, cwd = Path(top) / "home", Path(top) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY")}
        env |= {"CRUSHPY_HOME": str(home), "HOME": top, **where}
        asyncio.run(_fill(store_of(env), cwd, kilobytes * 1_000))
        start, _ = crushpy("sessions", "show", "none", cwd=cwd, env=env, may_fail=True)
        found: dict[str, float] = {}
        for form in ("markdown", "json"):
            used, _ = crushpy("sessions", "export", "latest", "--format", form, "-o", form, cwd=cwd, env=env)
            found |= {f"{form} s CPU": used["s CPU"], f"{form} MB": used["MB"]}
            if kilobytes >= 1_000:
                found[f"{form} s/MB"] = (used["s CPU"] - start["s CPU"]) / kilobytes * 1_000
            else:
                found[f"{form} s/MB"] = 0.0
        return found


def source_code(chars: int) -> str:
    files = sorted((Path(__file__).parents[2] / "crushpy").rglob("*.py"))
    text = "\n".join(file.read_text() for file in files)
    return (text * (chars // len(text) + 1))[:chars]


async def _fill(store: Store, cwd: Path, chars: int) -> None:
    info = SessionInfo(
        "long00000000", "long00000000", None, "root", 0, "long", str(cwd), MODEL, "auto", "", 1.0, 1.0
    )
    await store.sessions.create(info, Message("m0", "user", (Text("Look at all files."),), 1.0))
    code = source_code(chars)
    for number, start in enumerate(range(0, chars, CHARS)):
        call = ToolCall(f"call_{number}", "view", {"file_path": f"src/file_{number}.py"})
        asked = Message(f"a{number:08}", "assistant", (Text("Now the next one."), call), 1.0, MODEL)
        result = ToolResult(call.id, "view", code[start : start + CHARS])
        await store.messages.add(info.id, asked)
        await store.messages.add(info.id, Message(f"t{number:08}", "tool", (result,), 1.0))
    await store.close()
