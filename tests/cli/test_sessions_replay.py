"""`crushpy sessions replay` and `crushpy stats --replay`, on conversations of every shape."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import ScriptedLLM
from scripted_llm.replies import Call, Reply
from support.command import Cli
from support.conversations import begun, continued
from support.headless import Run
from support.stored import a_session, answered, replied, said

from crushpy.core.messages import ToolCall, Usage
from crushpy.engine.session.tree import fork_session, undo_compaction
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

Fill = Callable[[Callable[[Store], Awaitable[Any]]], Any]
SETTINGS = '[models."openai/one"]\ncontext_window = 20000\ninput_cost = 2.0\noutput_cost = 10.0\n'
WORDS = "some words of a long file that was read\n" * 60


@pytest.fixture
def fill(home: Path) -> Fill:
    """Writes to the database that the command reads."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(SETTINGS)

    def run(write: Callable[[Store], Awaitable[Any]]) -> Any:
        async def write_all() -> Any:
            store = Store(home / "crushpy.db")
            made = await write(store)
            await store.close()
            return made

        return asyncio.run(write_all())

    return run


async def work(store: Store, info: SessionInfo, steps: int, held: int = 3_000) -> None:
    """A turn of many steps: each reads a file of about 600 tokens and reports its usage."""
    await store.messages.add(info.id, said("read all of it. Never edit README.md."))
    for number in range(steps):
        call = ToolCall(f"{info.id}-{number}", "view", {"file_path": f"part{number}.txt"})
        usage = Usage(700, 20, held, 0, (700 * 2 + held * 2 + 20 * 10) / 1e6)
        await store.messages.add(info.id, replied(f"part {number}", call, usage=usage))
        await store.messages.add(info.id, answered(call, WORDS))
        held += 650
    await store.messages.add(info.id, replied("All read.", usage=Usage(700, 20, held, 0, 0.01)))


async def long_session(store: Store, cwd: Path, steps: int = 16) -> SessionInfo:
    info = a_session(str(cwd))
    await store.sessions.create(info)
    await work(store, info, steps)
    return info


def replays(cli: Cli, session: str, *options: str) -> list[dict[str, Any]]:
    done = cli("sessions", "replay", session, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["replays"]


def test_two_settings_stand_side_by_side_and_nothing_is_changed(
    cli: Cli, workspace: Path, fill: Fill, home: Path
) -> None:
    info = fill(lambda store: long_session(store, workspace))
    before = (home / "crushpy.db").read_bytes()
    options = ("--threshold", "0.9", "--compare", "threshold=0.4, prepare=false")
    recorded, high, low = replays(cli, info.id, *options)
    assert (recorded["boundaries"], high["boundaries"]) == ([], [])
    assert (high["label"], low["label"]) == ("threshold 0.9", "threshold 0.4, prepare False")
    first = low["boundaries"][0]
    assert first["tokens_before"] >= 8_000 > first["tokens_after"] > 0
    assert 0 < first["carried"] <= first["facts"]
    assert low["peak"] < high["peak"]
    assert low["usage"]["cost"] != high["usage"]["cost"] > 0
    opened = [place for place, request in enumerate(low["requests"]) if request.get("opens")]
    assert len(opened) == len(low["boundaries"])
    assert any("How it would have summarised" in text for text in low["unknown"])
    assert any("What the model would have done next" in text for text in high["unknown"])
    text = cli("sessions", "replay", info.id, *options).stdout
    assert re.search(r"as recorded +threshold 0.9 +threshold 0.4", text)
    assert "A replay cannot know:" in text
    assert text == cli("sessions", "replay", info.id, *options).stdout
    assert (home / "crushpy.db").read_bytes() == before


def test_a_window_a_method_and_a_template_can_be_tried(cli: Cli, workspace: Path, fill: Fill) -> None:
    info = fill(lambda store: long_session(store, workspace))
    (workspace / "mine.md").write_text("Summarise in one line.")
    _, small = replays(cli, info.id, "--window", "9000", "--template", "mine.md")
    assert small["window"] == 9_000
    assert len(small["boundaries"]) >= 2
    _, by_agent = replays(cli, info.id, "--method", "llm", "--window", "12000")
    assert {boundary["trigger"] for boundary in by_agent["boundaries"]} == {"agent"}
    assert any("opened a new session" in text for text in by_agent["unknown"])


def test_replay_shows_tokens_cost_and_hindsight_of_each_carry(cli: Cli, workspace: Path, fill: Fill) -> None:
    async def write(store: Store) -> SessionInfo:
        info = await long_session(store, workspace, 40)
        for number in range(25):
            usage = Usage(9_000, 20, 0, 0, 0.02)
            await store.messages.add(info.id, replied(f"back in part{number}.txt", usage=usage))
        return info

    info = fill(write)
    _, lean, normal, full = replays(cli, info.id, "--carry", "all", "--window", "12000")
    assert [found["label"] for found in (lean, normal, full)] == [
        f"window 12000, carry {size}" for size in ("lean", "normal", "full")
    ]
    needed, carried = full["names"]
    assert 0 < carried <= needed
    assert lean["names"][0] > 0 and lean["usage"]["cost"] > 0
    text = cli("sessions", "replay", info.id, "--carry", "all", "--window", "12000").stdout
    row = next(line for line in text.splitlines() if line.startswith("names needed later, carried"))
    assert f"{carried} of {needed} (" in row


def test_replayed_summaries_have_the_size_of_the_recorded_ones(cli: Cli, workspace: Path, fill: Fill) -> None:
    async def recorded(store: Store, summary: str) -> SessionInfo:
        parent = a_session(str(workspace))
        last = said("and the rest of it")
        await store.sessions.create(parent)
        await work(store, parent, 1)
        await store.messages.add(parent.id, last)
        child = await continued(store, parent, summary, tail=(last.id,))
        await work(store, child, 16)
        return child

    def first_request(summary: str) -> int:
        info = fill(lambda store: recorded(store, summary))
        _, low = replays(cli, info.id, "--threshold", "0.4")
        return low["boundaries"][-1]["tokens_after"]

    short, long = "## Goal\nGo on.", "## Goal\n" + "go on " * 600
    assert first_request(long) > first_request(short) + 300


def test_conversation_compacted_before_its_first_reply_is_replayed(
    cli: Cli, workspace: Path, fill: Fill
) -> None:
    async def recorded(store: Store) -> SessionInfo:
        parent = a_session(str(workspace))
        await store.sessions.create(parent, said("read all of it"))
        child = await continued(store, parent)
        await work(store, child, 4)
        return child

    info = fill(recorded)
    _, high = replays(cli, info.id, "--threshold", "0.9")
    assert high["boundaries"] == [] and len(high["requests"]) == 5


def test_a_window_smaller_than_the_prompt_compacts_nothing(cli: Cli, workspace: Path, fill: Fill) -> None:
    info = fill(lambda store: long_session(store, workspace))
    _, tiny = replays(cli, info.id, "--window", "1000")
    assert (tiny["boundaries"], len(tiny["requests"])) == ([], 17)


def test_settings_that_do_not_exist_are_named(cli: Cli, workspace: Path, fill: Fill) -> None:
    info = fill(lambda store: long_session(store, workspace, 2))
    for option in ("threshold=2", "method=none", "window=0", "colour=red", "prepare", "threshold="):
        done = cli("sessions", "replay", info.id, "--compare", option)
        assert (done.returncode, done.stdout) == (2, ""), option
        assert option.partition("=")[0] in done.stderr
        assert "Use method=auto|llm" in done.stderr
    assert cli("sessions", "replay", info.id, "--threshold", "1.5").returncode == 2
    assert cli("sessions", "replay", info.id, "--template", "none.md").returncode == 2


def test_conversations_of_every_shape_are_replayed(cli: Cli, workspace: Path, fill: Fill, home: Path) -> None:
    async def write(store: Store) -> dict[str, str]:
        empty = a_session(str(workspace))
        await store.sessions.create(empty)
        bare = await begun(store, "no usage", *(WORDS for _ in range(40)), cwd=str(workspace))
        imported = a_session(str(workspace), imported="codex", model="")
        await store.sessions.create(imported)
        await work(store, imported, 4)
        root = await long_session(store, workspace, 4)
        child = await continued(store, root, "s", "three", "four")
        await undo_compaction(store, child.id)
        await work(store, root, 8, 6_000)
        fork = (await fork_session(store, root)).info
        await work(store, fork, 2, 12_000)
        damaged = await long_session(store, workspace, 6)
        last = await continued(store, damaged, "s", "broken", "six")
        made = {"empty": empty, "bare": bare, "imported": imported, "undone": root}
        made |= {"child": child, "fork": fork, "damaged": last}
        return {name: info.id for name, info in made.items()}

    made = fill(write)
    with sqlite3.connect(home / "crushpy.db") as db:
        db.execute("""UPDATE message SET parts = '[{"type":' WHERE parts LIKE '%broken%'""")
    for name, session in made.items():
        for replay in replays(cli, session, "--threshold", "0.5"):
            assert replay["unknown"], name
            assert bool(replay["requests"]) == (name != "empty"), name
    (bare,) = replays(cli, made["bare"])
    assert any("without recorded usage" in text for text in bare["unknown"])
    with sqlite3.connect(home / "crushpy.db") as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM session WHERE kind = 'root'")
    assert replays(cli, made["child"])[0]["requests"]


def test_branches_count_up_to_the_session_that_is_replayed(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    for name in ("first", "second"):
        returns = Call("return_to_parent", {"result": name})
        llm.script(Reply(calls=[Call("branch", {"goal": name})]), Reply(calls=[returns]))
    llm.script("Done.")
    done = run("--yolo", "go", env={"CRUSHPY_COMPACTION__METHOD": "llm"})
    first, second = (line["session_id"] for line in done.of("branch"))

    def read(session: str) -> tuple[int, int]:
        """Tokens of all calls, and those of the branches beside."""
        [replay] = replays(cli, session)
        total = replay["usage"]["input_tokens"]
        return total, total - sum(request["tokens"] for request in replay["requests"])

    assert read(done.result["root_id"])[0] == done.result["usage"]["input_tokens"]
    assert read(first)[1] == 0
    assert read(second)[1] > 0


def test_a_model_without_prices_has_no_cost(cli: Cli, workspace: Path, fill: Fill, home: Path) -> None:
    info = fill(lambda store: begun(store, "t", "a", "b", cwd=str(workspace)))
    (home / "config.toml").write_text("")
    (one,) = replays(cli, info.id)
    assert one["usage"]["cost"] == 0
    assert any("no prices of openai/one" in text for text in one["unknown"])
    assert any("tokens are assumed" in text for text in one["unknown"])


def test_stats_answer_over_all_conversations(cli: Cli, workspace: Path, fill: Fill) -> None:
    fill(lambda store: long_session(store, workspace))
    fill(lambda store: long_session(store, workspace, 12))
    text = cli("stats", "--replay", "30").stdout
    assert text.startswith("2 conversations of the last 30 days: 0 compactions, ")
    pattern = r"threshold 0.5 would have cost \d+% (less|more) and compacted \d+ times? more\n"
    assert re.search(pattern, text)
    assert "A replay cannot know:" in text
    data = json.loads(cli("stats", "--replay", "--json").stdout)
    assert (data["conversations"], len(data["replays"])) == (2, 6)
    assert "0 conversations" in cli("stats", "--replay", "30", env={"CRUSHPY_HOME": str(workspace)}).stdout
    refused = cli("stats", "7")
    assert (refused.returncode, "--days 7" in refused.stderr) == (2, True)
