"""Private names of Textual are used in one module, and a new version of Textual that changes one is noticed.

What the keyboard and the paste reader do is tested with a real terminal in `test_prompt_terminal.py` and
`test_prompt_paste.py`.
"""

import ast
import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
import textual
from textual import _context, _xterm_parser
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.widgets import Input, Static

import crushpy.tui
from crushpy.tui import textual_adapter
from crushpy.tui.notify import dismiss_toasts, tell, tell_for_now
from crushpy.tui.textual_adapter import (
    AdaptedApp,
    AdaptedScreen,
    Keyboard,
    bindings_with_keymap,
    write_to_terminal,
)

TEXTUAL = Path(textual.__file__).parent
SOURCES = (
    *("app", "screen", "widget", "dom", "message_pump", "driver", "scroll_view", "command", "_xterm_parser"),
    *("_parser", "events", "message", "drivers/linux_driver", "widgets/_text_area", "widgets/_option_list"),
)
OURS = {"_exit": "of the os module"}


def _private(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        name = node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        name = node.attr
    else:
        return ""
    return name if name.startswith("_") and not name.startswith("__") else ""


@pytest.mark.slow
def test_private_names_of_textual_are_used_in_the_adapter_only() -> None:
    private = {
        name
        for source in SOURCES
        for node in ast.walk(ast.parse((TEXTUAL / f"{source}.py").read_text()))
        if (name := _private(node))
    }
    found: list[str] = []
    for file in Path(crushpy.tui.__file__).parent.rglob("*.py"):
        if file == Path(textual_adapter.__file__):
            continue
        nodes = list(ast.walk(ast.parse(file.read_text())))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        own |= {
            node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual._"):
                found.append(f"{file.name}:{node.lineno} {node.module}")
            if isinstance(node, ast.Attribute) and node.attr in private - own - OURS.keys():
                found.append(f"{file.name}:{node.lineno} {ast.unparse(node)}")
    assert not found


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (App, ("_fatal_error", "_handle_exception", "_close_messages_no_wait", "_unnotify")),
        (App, ("_refresh_notifications",)),
        (Screen, ("_refresh_layout",)),
        (LinuxDriver, ("run_input_thread", "disable_input", "process_message")),
        (_xterm_parser, ("BRACKETED_PASTE_START", "BRACKETED_PASTE_END", "XTermParser")),
        (_context, ("active_message_pump",)),
    ],
)
def test_the_methods_we_override_or_call_exist(owner: object, names: tuple[str, ...]) -> None:
    for name in names:
        assert hasattr(owner, name), f"Textual {textual.__version__} has no {name}"


class Host(AdaptedApp):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f5", "ring", id="ring")]

    def compose(self) -> ComposeResult:
        yield Input()

    def describe_crash(self, error: BaseException | None) -> str:
        return f"described: {error}"


async def test_attributes_that_are_read_exist() -> None:
    app = Host()
    async with app.run_test():
        for name in ("_driver", "_running", "_notifications", "_keymap", "_filters", "_exit_renderables"):
            assert hasattr(app, name)
        assert app.query_one(Input)._parent is app.screen  # pyright: ignore[reportPrivateUsage]
        write_to_terminal(app, "\x1b[0m")
    assert Keyboard is Host().get_driver_class()


async def test_toast_can_be_removed_alone() -> None:
    app = Host()
    async with app.run_test(notifications=True) as pilot:
        field = app.query_one(Input)
        for _ in range(2):
            tell(field, "first")
            await pilot.pause()
        take_back = tell_for_now(field, "stays")
        await pilot.pause()
        assert len(app.query("Toast")) == 2
        assert dismiss_toasts(field)
        await pilot.pause()
        assert len(app.query("Toast")) == 1
        assert not dismiss_toasts(field)
        take_back()
        await pilot.pause()
        assert not app.query("Toast")


async def test_bindings_follow_the_keymap() -> None:
    app = Host()
    async with app.run_test():
        assert "f5" in bindings_with_keymap(app)
        app.set_keymap({"ring": "f6"})
        assert "f6" in bindings_with_keymap(app)
        assert "f5" not in bindings_with_keymap(app)


@pytest.mark.parametrize(("theme", "expected"), [("textual-dark", Monochrome), ("ansi-dark", NoColor)])
async def test_the_filter_for_no_color_fits_the_theme(
    theme: str, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "truecolor")
    monkeypatch.setenv("NO_COLOR", "1")
    app = Host()
    async with app.run_test():
        app.theme = theme
        filters = app._filters  # pyright: ignore[reportPrivateUsage]
        assert any(isinstance(applied, expected) for applied in filters)


class Late(Static):
    resized = False

    def on_resize(self) -> None:
        self.resized = True


class OneField(App[None]):
    def get_default_screen(self) -> AdaptedScreen[None]:
        return AdaptedScreen()

    def compose(self) -> ComposeResult:
        yield Input()


async def test_a_widget_is_told_its_size_if_a_region_is_asked_for_while_it_is_mounted() -> None:
    app, late = OneField(), Late("here")
    async with app.run_test() as pilot:
        app.screen.mount(late)
        while not late.is_mounted:
            await asyncio.sleep(0)
        app.screen._compositor.update_widgets({late})
        assert app.query_one(Input).region
        await pilot.pause()
        assert late.size.height == 1
        assert late.resized
