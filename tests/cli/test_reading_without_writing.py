"""Lists, searches and exports write nothing: others may hold the database, or it is only to be read."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytest import CaptureFixture
from scripted_llm import ScriptedLLM
from support.command import Cli
from support.stored import a_session, said
from support.talk import Talks

from crushpy.cli.printers import StreamPrinter
from crushpy.core.events import Notice, PromptCommitted, SessionOpened
from crushpy.storage.store import Store

READING = [
    pytest.param(["sessions", "list", "--all"], id="list"),
    pytest.param(["sessions", "show", "SESSION"], id="show"),
    pytest.param(["sessions", "search", "zebra", "--all"], id="search"),
    pytest.param(["sessions", "search", "lion", "--session", "SESSION"], id="search of one"),
    pytest.param(["sessions", "export", "SESSION"], id="export"),
    pytest.param(["sessions", "tree", "SESSION"], id="tree"),
]
BY_THE_RIGHTS_OF_FILES = "-dac_override,-dac_read_search,-fowner"


@pytest.fixture
def session(home: Path) -> str:
    """A conversation of which the last message waits for the index."""

    async def write() -> str:
        store = Store(home / "crushpy.db")
        info = a_session(title="about a zebra")
        await store.sessions.create(info, said("a zebra"))
        while await store.run_maintenance():
            pass
        await store.messages.add(info.id, said("and a lion"))
        await store.close()
        return info.id

    return asyncio.run(write())


@pytest.fixture
def held(home: Path, session: str) -> Iterator[sqlite3.Connection]:
    """Another program that writes all the while."""
    with closing(sqlite3.connect(home / "crushpy.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


@pytest.mark.parametrize("words", READING)
@pytest.mark.usefixtures("held")
def test_readers_do_not_wait_for_a_writer(cli: Cli, session: str, words: list[str]) -> None:
    done = cli(*(word.replace("SESSION", session) for word in words))
    assert done.returncode == 0, done.stderr
    assert "zebra" in done.stdout or "lion" in done.stdout
    assert "Waiting" not in done.stderr
    if words[:3] == ["sessions", "search", "zebra"]:
        assert "1 message could not be searched yet" in done.stderr


async def test_a_write_that_waits_says_so_once_and_when_it_goes_on(
    home: Path, session: str, held: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.database.NOTICE_DELAY_S", 0.0)
    store = Store(home / "crushpy.db")
    heard: list[str] = []
    told = asyncio.Event()

    def hear(words: str) -> None:
        heard.append(words)
        told.set()

    store.listen(hear)
    writing = asyncio.create_task(store.messages.add(session, said("and a bear")))
    await told.wait()
    assert not writing.done()
    held.execute("ROLLBACK")
    await writing
    await asyncio.sleep(0)
    await store.close()
    place = home / "crushpy.db"
    assert heard == [
        f"Another program is writing to the database {place}. Waiting for it, up to a minute.",
        f"The database {place} is free again.",
    ]


async def test_a_first_prompt_that_waits_is_not_without_a_word(
    talks: Talks,
    llm: ScriptedLLM,
    home: Path,
    session: str,
    held: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crushpy.storage.database.NOTICE_DELAY_S", 0.0)
    llm.script("Hello.")
    talk = await talks()
    asking = asyncio.create_task(talk.ask("hi"))
    told = await talk.until_event(Notice)
    assert "Waiting for it" in told.text and not talk.of(PromptCommitted)
    held.execute("ROLLBACK")
    assert await asking == "done"


def test_a_stream_of_json_begins_with_the_session_all_the_same(capfdbinary: CaptureFixture[bytes]) -> None:
    out = StreamPrinter()
    opened = SessionOpened("s", None, "m", "auto")
    for event in (Notice("Waiting.", "warning"), opened, Notice("Free again.", "warning")):
        out(event)
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["session", "notice", "notice"]


def as_owner(*words: str) -> "subprocess.CompletedProcess[str]":
    """Without the rights by which root writes to anything."""
    root = os.geteuid() == 0
    if root and shutil.which("setpriv") is None:
        pytest.skip("nothing is read-only to root, and setpriv is not here")
    dropped = f"--bounding-set={BY_THE_RIGHTS_OF_FILES}", f"--inh-caps={BY_THE_RIGHTS_OF_FILES}"
    before = ["setpriv", *dropped] if root else []
    return subprocess.run(
        [*before, sys.executable, "-m", "crushpy", *words], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("words", READING[:4])
def test_a_database_that_is_only_to_be_read_is_read(home: Path, session: str, words: list[str]) -> None:
    """The folder too: nothing can be made in it, as reading otherwise wants to."""
    (home / "crushpy.db").chmod(0o400)
    home.chmod(0o500)
    done = as_owner(*(word.replace("SESSION", session) for word in words))
    home.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert "zebra" in done.stdout or "lion" in done.stdout


@pytest.mark.slow
def test_a_file_made_read_only_stays_so_and_can_be_written_to_once_it_may(home: Path, session: str) -> None:
    file = home / "crushpy.db"
    file.chmod(0o444)
    assert as_owner("sessions", "list", "--all").returncode == 0
    assert file.stat().st_mode & 0o777 == 0o400, "others may not look; nobody may write"
    refused = as_owner("sessions", "delete", session, "--yes")
    assert refused.returncode == 1 and "Make the file and its folder writable" in refused.stderr
    doctor = as_owner("doctor")
    assert f"{file} is not writable" in doctor.stdout
    file.chmod(0o600)
    assert as_owner("sessions", "delete", session, "--yes").returncode == 0
