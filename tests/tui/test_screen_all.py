"""What holds for every screen: any size, any theme, and a way out."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
from hosting import CONTROLS, no_preview, nothing, shown
from rich.style import Style
from support.conversations import begun, continued
from support.stored import said
from textual.screen import Screen

from crushpy.context.budget import Budget
from crushpy.context.inspect import Inspection, Row
from crushpy.core.events import ReviewNeeded
from crushpy.core.messages import Seed
from crushpy.core.paths import Paths
from crushpy.core.templates import Templates
from crushpy.engine.rewind.rewinder import FileView, PointSummary
from crushpy.engine.session.browser import SessionBrowser
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store
from crushpy.tools.shell.jobs import RunningJob
from crushpy.tui import screens
from crushpy.tui.actions.overview import WatchScreen
from crushpy.tui.screens.choose import PaletteScreen
from crushpy.tui.screens.connect import ConnectScreen, key_screen
from crushpy.tui.screens.help import GlossaryScreen, HelpScreen
from crushpy.tui.screens.inspector import InspectorScreen
from crushpy.tui.screens.message_search import SearchScreen
from crushpy.tui.screens.models import ModelsScreen
from crushpy.tui.screens.overlay import PanelScreen
from crushpy.tui.screens.rewind import RestorationScreen, RewindScreen
from crushpy.tui.screens.server_form import ServerForm
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import CompareScreen, SessionTreeScreen
from crushpy.tui.screens.sessions import SessionsScreen
from crushpy.tui.screens.summary_review import ReviewScreen
from crushpy.tui.screens.template import TemplateScreen
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.widgets.key_bar import KeyBar
from crushpy.tui.widgets.row_list import CURSOR, RowList

FILLED = Inspection(Budget(60, 100, True, False), tuple(Row("user", f"part {n}", n, False) for n in range(9)))
VIEWS = (
    FileView("a.py", "changed", 1, 1, unified="@@ -1,1 +1,1 @@\n-a\n+b"),
    FileView("b" * 200, "conflict", note="changed since"),
)


SCREENS: dict[str, Callable[[SessionBrowser, str], Screen[Any]]] = {
    "sessions": lambda library, _: SessionsScreen(library, "/work"),
    "tree": lambda library, session_id: SessionTreeScreen(library, session_id, nothing),
    "reading": SessionReaderScreen,
    "compare": lambda *_: CompareScreen(("one", "two"), (Seed("a\nb", ""), Seed("a\nc " * 99, ""))),
    "inspector": lambda *_: InspectorScreen(lambda: FILLED, "auto", {"auto": 0.75}, CONTROLS),
    "review": lambda *_: ReviewScreen(ReviewNeeded("r", "auto", "summary", "evidence", 9, 1)),
    "models": lambda *_: ModelsScreen(Settings(), "demo/tour"),
    "template": lambda *_: TemplateScreen(Templates(Paths().templates), no_preview),
    "palette": lambda *_: PaletteScreen((), {}),
    "help": lambda *_: HelpScreen({}),
    "glossary": lambda *_: GlossaryScreen(),
    "search": lambda library, _: SearchScreen(library, "/work", "zebra"),
    "connect": lambda *_: ConnectScreen(Settings()),
    "key": lambda *_: key_screen("openai"),
    "rewind": lambda *_: RewindScreen(
        [PointSummary(said(f"prompt {n}"), ("a.py",) * n) for n in range(9)], "/work", nothing
    ),
    "server form": lambda *_: ServerForm(
        "shop",
        {
            "message": "Who are you?",
            "requestedSchema": {
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer"},
                    "member": {"type": "boolean"},
                    "size": {"type": "string", "enum": ["S", "M"]},
                },
                "required": ["name"],
            },
        },
    ),
    "watch": lambda *_: WatchScreen(RunningJob("job1", "make", 3.0, "done\n"), lambda: ()),
    "panel": lambda *_: PanelScreen("Status", "model  demo/tour"),
    "restoration": lambda *_: RestorationScreen("Undo", VIEWS, lambda: Palette(lambda *_: Style())),
}


ELSEWHERE = {
    "ChatScreen": "test_chat.py and more",
    "ChooseScreen": "test_screen_choose.py",
    "LineScreen": "the screen of a key",
}
"""Screens that are tried in files of their own."""


def test_every_screen_is_tried() -> None:
    tried = {name for name, value in globals().items() if _is_screen(value)}
    for file in pkgutil.iter_modules(screens.__path__):
        module = importlib.import_module(f"{screens.__name__}.{file.name}")
        for name, value in vars(module).items():
            own = _is_screen(value) and value.__module__ == module.__name__ and not value.__subclasses__()
            assert not own or name in tried or name in ELSEWHERE, (
                f"{name} of crushpy/tui/screens/{file.name}.py is in no test of all screens: "
                "add it to SCREENS in tests/tui/test_screen_all.py"
            )


def _is_screen(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Screen) and value is not Screen


@pytest.fixture(params=SCREENS)
async def screen(
    request: pytest.FixtureRequest, store: Store, library: SessionBrowser, monkeypatch: pytest.MonkeyPatch
) -> Screen[Any]:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "")
    for number in range(6):
        info = await begun(store, f"talk {number}", "a zebra", "and **another**\n\n```py\nx = 1\n```")
        info = await continued(store, info, "It was about a zebra.", "go on", "yes")
    return SCREENS[request.param](library, info.id)


@pytest.mark.slow
@pytest.mark.sampled(every=4)
async def test_screens_survive_any_resize(screen: Screen[Any]) -> None:
    async with shown(screen) as open_screen:
        before = open_screen.text
        for size in ((20, 6), (300, 80), (1, 1), (40, 12), (80, 24)):
            await open_screen.pilot.resize_terminal(*size)
            await open_screen.settle()
        assert open_screen.text == before
        await open_screen.press("escape")
        assert len(open_screen.results) == 1


@pytest.mark.sampled(every=4)
async def test_screens_run_no_timer_in_any_theme(screen: Screen[Any]) -> None:
    async with shown(screen) as open_screen:
        app = open_screen.app
        for theme in ("ansi-dark", "textual-light"):
            app.theme = theme
            await open_screen.settle()
            assert "Esc" in open_screen.text
            for rows in app.screen.query(RowList):
                marked, plain = rows.render_line(rows.highlighted), rows.render_line(rows.highlighted + 1)
                assert [segment.style for segment in marked] != [segment.style for segment in plain]
                assert (marked.text[0], plain.text[0]) == (CURSOR, " ")
        nodes = [app.screen, *app.screen.query("*")]
        timers = [timer for node in nodes for timer in node._timers]
        assert [timer for timer in timers if timer._repeat is None and timer._active.is_set()] == []


@pytest.mark.sampled(every=4)
async def test_screens_work_without_colours_and_with_the_mouse(
    screen: Screen[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(screen) as open_screen:
        assert open_screen.app.screen.query(KeyBar)
        await open_screen.click("Esc ", nth=-1)
        assert len(open_screen.results) == 1


@pytest.mark.sampled(every=4)
async def test_closing_a_screen_twice_is_harmless(screen: Screen[Any]) -> None:
    async with shown(screen) as open_screen:
        below = open_screen.app.screen_stack[:-1]
        screen.dismiss(None)
        screen.dismiss(None)
        await open_screen.settle()
        assert open_screen.app.screen_stack == below
        assert open_screen.results == [None]
