"""Two machines and one server: the app on one of them while the other has the session, or takes it over."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm import Reply, ScriptedLLM, Stall
from support.postgres_server import Server
from support.stored import a_session, said

from crushpy.storage.store import Store

__all__ = ["start"]
pytestmark = pytest.mark.xdist_group("postgres")
SESSION = "shared000000"


@pytest.fixture
def database(postgres: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the app stores in."""
    name = postgres.fresh()
    monkeypatch.setenv("CRUSHPY_DATABASE_URL", postgres.url(name))
    yield name
    postgres.drop(name)


async def stored(postgres: Server, database: str, workspace: Path) -> Store:
    """The other machine's store, with a session that both know."""
    other = Store(Path("/nonexistent"), postgres.url(database))
    await other.sessions.create(a_session(str(workspace), id=SESSION), said("hello from afar"))
    return other


def held_elsewhere(postgres: Server, database: str, silent: int = 0) -> None:
    """As if whoever holds the session did so on another machine, and had been silent for so long."""
    postgres.execute(
        "UPDATE crushpy.lease SET place = 'elsewhere', host = 'laptop', process = 4321, "
        f"heartbeat = extract(epoch FROM clock_timestamp()) - {silent}",
        database,
    )


async def test_a_session_that_is_open_on_another_machine_is_refused_with_three_choices(
    start: Start, postgres: Server, database: str, workspace: Path
) -> None:
    other = await stored(postgres, database, workspace)
    await other.leases.acquire(SESSION)
    held_elsewhere(postgres, database)
    async with start(session=SESSION) as app:
        await app.sees("This conversation is open elsewhere", "Read it", "Fork it", "Cancel")
        await app.sees("(process 4321 on laptop)")
        await app.press("enter")
        await app.sees("hello from afar")
        await app.press("escape")
    assert len(await other.sessions.list_tips()) == 1, "reading it made nothing"
    await other.close()


async def taken_over(app: Driven, other: Store, postgres: Server, database: str) -> None:
    """The other machine takes the session while this one stands still, and writes to it."""
    held_elsewhere(postgres, database, 60)
    await other.leases.acquire(SESSION)
    await other.messages.add(SESSION, said("from the other machine"))


async def test_prompt_is_refused_and_kept_after_a_takeover(
    start: Start, llm: ScriptedLLM, postgres: Server, database: str, workspace: Path
) -> None:
    other = await stored(postgres, database, workspace)
    llm.always("An answer.")
    async with start(session=SESSION, size=(120, 40)) as app:
        await app.sees("hello from afar")
        await app.rests()
        await taken_over(app, other, postgres, database)
        await app.say("my precious words")
        await app.sees("was taken over by another crushpy")
        await app.rests()
        assert "my precious words" in app.text, app.text
    texts = [message.text for message in await other.messages.load(SESSION)]
    assert texts == ["hello from afar", "from the other machine"]
    await other.close()


async def test_a_reply_that_comes_after_another_machine_took_over_is_shown_and_not_stored(
    start: Start, llm: ScriptedLLM, postgres: Server, database: str, workspace: Path
) -> None:
    other = await stored(postgres, database, workspace)
    llm.script(Stall(Reply("A long and precious answer.", chunk=6), after=2))
    async with start(session=SESSION, size=(120, 40)) as app:
        await app.sees("hello from afar")
        await app.say("tell me")
        await app.sees("A long")
        await taken_over(app, other, postgres, database)
        llm.release()
        await app.sees("was taken over by another crushpy", "Open the session again")
        assert "A long and precious answer." in app.text, app.text
    texts = [message.text for message in await other.messages.load(SESSION)]
    assert texts == ["hello from afar", "tell me", "from the other machine"]
    await other.close()
