"""Every screen as it looks, in sizes and colours: a picture that changes is a change somebody has to look at.

`pytest tests/tui/test_snapshots.py --snapshot-update` takes the pictures again.
"""

import os
import platform
import shutil
import sqlite3
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import keyring
import keyring.backends.fail
import msgspec
import pytest
from driving import MODEL, Driven, SoundApp
from prompt_host import Host, type_text
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.selection import ALL
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from crushpy.core.app_commands import AppCommand
from crushpy.core.events import HindsightKnown
from crushpy.core.messages import Seed, Usage
from crushpy.core.paths import Paths
from crushpy.core.start_options import StartOptions
from crushpy.llm.tokens import Counter
from crushpy.tui.items import BoundaryItem
from crushpy.tui.screens.choose import ChooseScreen, LineScreen, PaletteScreen
from crushpy.tui.screens.connect import ConnectScreen
from crushpy.tui.screens.help import GlossaryScreen, HelpScreen
from crushpy.tui.screens.inspector import InspectorScreen
from crushpy.tui.screens.message_search import SearchScreen
from crushpy.tui.screens.models import ModelsScreen
from crushpy.tui.screens.rewind import RestorationScreen, RewindScreen
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import CompareScreen, SessionPreview, SessionTreeScreen
from crushpy.tui.screens.sessions import SessionsScreen
from crushpy.tui.screens.summary_review import ReviewScreen
from crushpy.tui.screens.template import TemplateScreen
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.widgets.prompt import PromptInput

USUAL = (80, 24)
LOOKS: dict[str, tuple[tuple[int, int], str]] = {
    "80x24": (USUAL, "crushpy-dark"),
    "120x36": ((120, 36), "crushpy-dark"),
    "40x12": ((40, 12), "crushpy-dark"),
    "light": (USUAL, "crushpy-light"),
    "16 colours": (USUAL, "ansi-dark"),
}
"""Sizes and themes; what is done before the picture is done in the usual size.

Each screen has the first and one of the others, in turn; all of them in bin/nightly and when the pictures are
taken again.
"""
pytestmark = [pytest.mark.slow, pytest.mark.sampled(every=2)]
NOW = 1_750_000_000.0
CART = """RATE = 0.19


def total(prices):
    return sum(prices) * (1 + RATE)
"""
USAGE = Usage(input_tokens=9_000, output_tokens=200)
SUMMARY = (
    "## Goal\nThe reduced rate in `src/cart.py`.\n\n## Done\n- `RATE` is 0.07.\n\n## Next\nRun the tests."
)
COMMANDS = (
    AppCommand("Compact Now", "compact", "Compact now; shows the summary first.", "compact", "[focus words]"),
    AppCommand(
        "Select Compaction Method",
        "select_compaction",
        "Who decides when to compact: crushpy or the model.",
        "compaction",
        "[auto|llm]",
        "ctrl+t",
    ),
    AppCommand("Hand Off", "handoff", "Continue in a new session with your own summary.", "handoff", "TEXT"),
    AppCommand("New Session", "new_conversation", "Begin a new conversation.", "new", key="ctrl+n"),
    AppCommand("Redraw", "redraw", "Redraw the screen.", key="f5"),
    AppCommand("Help", "help", "Keys and commands.", "help", key="f1"),
)
"""Those of pictures: a new command of the app changes none."""
SHOWN = "/tmp/kim-000000"
"""What pictures show as the folder of the test."""

Act = Callable[[Driven], Awaitable[None]]
Picture = Callable[[Act], bool]


class PicturedApp(SoundApp):
    """The app, whose pictures do not tell in which folder they were taken."""

    folder = SHOWN

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        return super().export_screenshot(title=title, simplify=simplify).replace(self.folder, SHOWN)


class Clock:
    """The time of day, which goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)
    return clock


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose name is always as long, and as many tokens to a model: six digits differ."""
    for number in range(os.getpid() % 1_000_000, 1_000_000):
        folder = Path(f"/tmp/kim-{number:06}")
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            break
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    yield folder / "work"
    shutil.rmtree(folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "picture" not in metafunc.fixturenames:
        return
    first, *others = LOOKS
    chosen = [first, others[zlib.crc32(metafunc.function.__name__.encode()) % len(others)]]
    if ALL or metafunc.config.option.update_snapshots:
        chosen = list(LOOKS)
    metafunc.parametrize("picture", [LOOKS[each] for each in chosen], ids=chosen, indirect=True)


@pytest.fixture
def picture(
    request: pytest.FixtureRequest,
    snap_compare: Callable[..., bool],
    llm: ScriptedLLM,
    workspace: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> Picture:
    """`picture(act)` runs the app, does what `act` does, and compares what is seen then."""
    (workspace / "src").mkdir()
    (workspace / "src" / "cart.py").write_text(CART)
    for name, value in {"CRUSHPY_SMALL_MODEL": "demo/tour", **llm.env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("CRUSHPY_SANDBOX__MODE", "off")  # the same with and without one
    time.tzset()
    _freeze(monkeypatch)
    Counter().wait()  # else the figures are guesses, until some test has loaded the vocabulary

    size, theme = request.param

    async def acted(pilot: Pilot[Any], act: Act) -> None:
        driven = Driven(pilot)
        await driven.opened()
        await driven.sees("none: commands run")  # the welcome is complete
        driven.app.theme = theme
        await act(driven)
        if size != USUAL:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        if driven.approval is None and not isinstance(driven.app.screen, ReviewScreen):
            await driven.rests()
        for field in driven.app.screen.query("*"):
            if isinstance(field, Input | TextArea):
                field.cursor_blink = False
                field._cursor_visible = True
        await pilot.pause()

    def compare(act: Act) -> bool:
        app = PicturedApp(StartOptions(cwd=str(workspace), model=MODEL))
        app.folder = str(workspace.parent)
        app.animation_level = "none"
        same = snap_compare(app, terminal_size=USUAL, run_before=lambda pilot: acted(pilot, act))
        return same or differs(request)

    return compare


def differs(request: pytest.FixtureRequest) -> bool:
    """Fails with what to do about a picture."""
    test = request.node.nodeid
    pytest.fail(
        f"""The screen does not look as in its picture.
snapshot_report.html shows both, once the run has ended. If the new one is right, renew the picture:
  .venv/bin/pytest -n 0 --snapshot-update "{test.partition("[")[0]}"
  git diff --stat tests/tui/__snapshots__""",
        pytrace=False,
    )


def _freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine gives us: names drawn by lot, and what it is called."""
    numbers = count(1)
    drawn = os.urandom

    def numbered(size: int) -> bytes:
        if size != 12:  # not for our ids
            return drawn(size)
        return (next(numbers) * 0x9E3779B97F4A7C15F39CC060 % 2**96).to_bytes(12, "big")

    monkeypatch.setattr(os, "urandom", numbered)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "release", lambda: "6.1.0")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


# --- what is done before the picture is taken ------------------------------------------------------------


def change(llm: ScriptedLLM) -> None:
    """The model changes the rate, and says so."""
    edit = {"file_path": "src/cart.py", "old_string": "0.19", "new_string": "0.07"}
    llm.script(
        Reply(calls=[Call("view", {"file_path": "src/cart.py"}, "call_1")], usage=USAGE),
        Reply("The rate is in one place.", calls=[Call("edit", edit, "call_2")], usage=USAGE),
        Reply("Done: the rate is **0.07** now.\n\n```python\nRATE = 0.07\n```", usage=USAGE),
    )


async def changed(app: Driven) -> None:
    await app.say("use the reduced rate in src/cart.py")
    await app.asked()
    await app.press("y")
    await app.sees("Done: the rate is")
    await app.rests()
    await app.until(lambda: app.conversation.info.title, "a title")


async def handed_off(app: Driven) -> None:
    await changed(app)
    app.chat.prompt.draft = f"/handoff {SUMMARY}"
    app.chat.prompt.action_submit()
    await app.until(lambda: app.conversation.info.generation == 1, "the boundary")
    await app.rests()
    await app.sees("Context compacted")
    await in_no_time(app)


async def in_no_time(app: Driven) -> None:
    """How long the boundary took differs from run to run: it becomes nothing, stored and on its card."""
    with closing(sqlite3.connect(Paths().database)) as database, database:
        database.execute("UPDATE boundary SET seconds = 0")
    for key in app.chat.transcript.keys():  # noqa: SIM118
        item = app.chat.transcript.item(key)
        if isinstance(item, BoundaryItem):
            boundary = msgspec.structs.replace(item.boundary, seconds=0.0)
            app.chat.transcript.replace(key, msgspec.structs.replace(item, boundary=boundary))
    await app.rests()


def test_the_chat_with_a_change_opened(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await changed(app)
        await app.press("ctrl+e")

    assert picture(act)


def test_an_approval(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await app.say("use the reduced rate in src/cart.py")
        await app.asked()

    assert picture(act)


def test_the_palette(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        app.app.push_screen(PaletteScreen((), {}, commands=COMMANDS))
        await app.shows(PaletteScreen)
        await app.press(*"comp")
        await app.sees("Compact Now", "Select Compaction Method")

    assert picture(act)


def test_the_method_dialog(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        await app.press("ctrl+t")
        await app.shows(ChooseScreen)
        await app.sees("the model decides")

    assert picture(act)


def test_the_inspector(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await changed(app)
        await app.press("ctrl+o")
        await app.shows(InspectorScreen)
        await app.press("end")
        await app.sees("src/cart.py")

    assert picture(act)


def test_a_compaction(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)
    assert picture(handed_off)


def test_the_session_tree(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await handed_off(app)
        await app.press("ctrl+l")
        await app.shows(SessionTreeScreen)
        await app.until(lambda: app.app.screen.query_one(SessionPreview).keys(), "the preview")

    assert picture(act)


def test_two_compactions_compared(picture: Picture) -> None:
    first = (
        "## Goal\nUse the reduced rate.\n\n## Done\n- src/cart.py has RATE = 0.07\n\n## Next\n- run the tests"
    )
    second = first.replace("- run the tests", "- none").replace("0.07", "0.07; 12 tests pass")

    async def act(app: Driven) -> None:
        names = "generation 2, 14:02", "generation 3, 15:40"
        seeds = Seed(first, "files changed: src/cart.py"), Seed(second, "files changed: src/cart.py")
        app.app.push_screen(CompareScreen(names, seeds))
        await app.shows(CompareScreen)
        await app.sees("generation 3")

    assert picture(act)


def test_the_sessions(picture: Picture, llm: ScriptedLLM, clock: Clock) -> None:
    llm.script(*(Reply(f"Answer {number}.", usage=USAGE) for number in range(3)))

    async def act(app: Driven) -> None:
        for number, question in enumerate(("what is in src?", "how are prices added?", "which tests fail?")):
            await app.say(question)
            await app.sees(f"Answer {number}.")
            await app.rests()
            await app.until(lambda: app.conversation.info.title, "a title")
            clock.now += 3_600 * (number + 1)
            here = app.conversation
            await app.press("ctrl+n")
            await app.until(lambda here=here: app.chat.conversation not in (None, here), "a new one")
            await app.rests()
        await app.press("ctrl+r")
        await app.shows(SessionsScreen)
        await app.sees("what is in src?", "which tests fail?")

    assert picture(act)


def test_the_models(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        app.app.action_command("switch_model")
        await app.shows(ModelsScreen)
        await app.sees("available")
        await app.type("demo")
        await app.sees("demo/tour")

    assert picture(act)


def test_the_help(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        app.app.push_screen(HelpScreen({}, COMMANDS))
        await app.shows(HelpScreen)

    assert picture(act)


@pytest.mark.parametrize("size", [USUAL, (40, 12)], ids=["80x24", "40x12"])
def test_the_slash_menu(
    snap_compare: Callable[..., bool], request: pytest.FixtureRequest, size: tuple[int, int]
) -> None:
    async def act(pilot: Pilot[Any]) -> None:
        prompt = pilot.app.query_one(PromptInput)
        prompt.cursor_blink = False
        while prompt.region.y == 0:  # there is room above it once it is laid out
            await pilot.pause()
        await type_text(pilot, "/")
        await pilot.pause()

    app = Host(PromptInput(commands=[command for command in COMMANDS if command.slash]))
    app.animation_level = "none"
    assert snap_compare(app, terminal_size=size, run_before=act) or differs(request)


def test_the_template_editor(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        app.app.action_command("edit_template")
        await app.shows(TemplateScreen)
        await app.sees("default", "Available names")

    assert picture(act)


def test_a_review(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)
    llm.script(Reply(SUMMARY, usage=USAGE))

    async def act(app: Driven) -> None:
        await changed(app)
        app.chat.prompt.draft = "/compact the rate"
        app.chat.prompt.action_submit()
        await app.shows(ReviewScreen)
        await app.sees("Compaction", "Evidence")

    assert picture(act)


def test_the_greeting(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        await app.sees("crushpy", "AGENTS.md")

    assert picture(act)


def test_the_glossary(picture: Picture) -> None:
    async def act(app: Driven) -> None:
        await app.say("/glossary")
        await app.shows(GlossaryScreen)

    assert picture(act)


def test_the_search(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await changed(app)
        await app.say("/search reduced")
        await app.shows(SearchScreen)
        await app.sees("1 hit")

    assert picture(act)


def test_snapshot_of_the_rewind_list(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await changed(app)
        await app.say("/rewind")
        await app.shows(RewindScreen)
        await app.sees(" +1 -")

    assert picture(act)


def test_snapshot_of_the_rewind_preview(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await changed(app)
        await app.say("/undo")
        await app.shows(RestorationScreen)
        await app.sees("cart.py")

    assert picture(act)


def test_a_compaction_in_hindsight(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await handed_off(app)
        known = HindsightKnown("", needed=31, carried=28, reread_files=1, reread_tokens=1_200, final=False)
        for key in app.chat.transcript.keys():  # noqa: SIM118
            item = app.chat.transcript.item(key)
            if isinstance(item, BoundaryItem):
                app.chat.transcript.replace(key, msgspec.structs.replace(item, hindsight=known.words))
        await app.press("tab", "home")
        for _ in range(12):
            await app.press("down")
        await app.sees("needed since: 31 names")

    assert picture(act)


def test_a_session_that_is_read(picture: Picture, llm: ScriptedLLM) -> None:
    change(llm)

    async def act(app: Driven) -> None:
        await handed_off(app)
        (card,) = (
            key
            for key in app.chat.transcript.keys()  # noqa: SIM118
            if isinstance(app.chat.transcript.item(key), BoundaryItem)
        )
        app.chat.transcript.post_message(Transcript.ItemActivated(card, "open_parent"))
        await app.shows(SessionReaderScreen)
        await app.sees("The rate is in one place.")

    assert picture(act)


def test_a_plan(picture: Picture, llm: ScriptedLLM) -> None:
    llm.script(Reply("1. Change `RATE` in `src/cart.py`.\n2. Run the tests.", usage=USAGE))

    async def act(app: Driven) -> None:
        await app.press("shift+tab", "shift+tab")
        await app.until(lambda: app.mode_shown == "plan", "plan")
        await app.say("use the reduced rate")
        await app.sees("Run the tests.")
        await app.rests()
        await app.sees("The plan is ready")
        await app.until(lambda: "Keys work after" not in app.text, "keys to count")
        await app.until(lambda: app.conversation.info.title, "a title")

    assert picture(act)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A keyring of the test's own, and a call that leaves no server whose address could be seen."""
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "")
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    from support.file_keyring import FileKeyring  # here: wherever it is known, it is taken for the system's

    keyring.set_keyring(FileKeyring())
    yield lambda: monkeypatch.delenv("OPENAI_BASE_URL")
    keyring.set_keyring(keyring.backends.fail.Keyring())


def test_the_ways_to_a_model(picture: Picture, alone: Callable[[], None]) -> None:
    async def act(app: Driven) -> None:
        alone()
        await app.say("/connect")
        await app.shows(ConnectScreen)
        await app.sees("anthropic", "demo/tour")

    assert picture(act)


def test_a_key_that_is_typed(picture: Picture, alone: Callable[[], None]) -> None:
    async def act(app: Driven) -> None:
        alone()
        await app.say("/connect groq")
        await app.shows(ConnectScreen)
        await app.sees("groq")
        await app.press("enter")
        await app.shows(LineScreen)
        await app.type("gsk-secret")

    assert picture(act)
