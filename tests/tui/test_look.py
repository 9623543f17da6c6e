"""Colours that can be read, the theme that fits the terminal, and what a new conversation greets with."""

import itertools

import pytest
from driving import Start, start
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.style import Style
from scripted_llm.server import ScriptedLLM
from textual.color import Color
from textual.geometry import Size

from crushpy.context.coverage import carried_words
from crushpy.context.inspect import RequestMade, requests_made
from crushpy.core.messages import Usage
from crushpy.tui.greeting import WORDMARK, Greeting, card
from crushpy.tui.screens.inspector import window_chart
from crushpy.tui.terminal import terminal_features
from crushpy.tui.terminal.terminal_features import LateAnswer, extract_background
from crushpy.tui.themes import OWN_THEMES, fitting_theme
from crushpy.tui.transcript.render.styles import BLOCKS

__all__ = ["start"]

READABLE = 4.5
"""WCAG AA, for text of any size."""
TEXTS = (
    *("foreground", "text-muted", "text-disabled", "text-primary", "text-secondary", "text-accent"),
    *("text-success", "text-warning", "text-error", "primary", "accent", "success", "warning", "error"),
)


def contrast(one: Color, other: Color) -> float:
    def light(colour: Color) -> float:
        parts = [part / 255 for part in colour.rgb]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((light(one), light(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", OWN_THEMES.values(), ids=lambda theme: theme.name)
@pytest.mark.parametrize("ground", ["background", "surface", "panel"])
def test_every_text_colour_can_be_read_on_every_ground(theme: object, ground: str) -> None:
    colours = theme.to_color_system().generate()  # pyright: ignore[reportAttributeAccessIssue]
    found = {name: contrast(Color.parse(colours[name]), Color.parse(colours[ground])) for name in TEXTS}
    assert {name: round(value, 1) for name, value in found.items() if value < READABLE} == {}


@pytest.mark.parametrize("name", [name for name in OWN_THEMES if name.endswith("256")])
def test_a_theme_for_256_colours_names_none_that_would_be_rounded(name: str) -> None:
    theme = OWN_THEMES[name]
    named = {
        value for value in (*vars(theme).values(), *theme.variables.values()) if str(value).startswith("#")
    }
    for colour in named:
        meant = RichColor.parse(colour)
        drawn = meant.downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        off = [abs(a - b) for a, b in zip(meant.get_truecolor(), drawn, strict=True)]
        assert max(off) <= 10, colour  # one step of the greys


@pytest.mark.parametrize("name", OWN_THEMES)
async def test_transcript_colours_have_enough_contrast(start: Start, name: str) -> None:
    async with start() as app:
        await app.opened()
        app.app.theme = name
        await app.pilot.pause()
        palette = app.chat.transcript.current_palette()
        for name in BLOCKS:
            style: Style = palette[name]
            if name in ("track", "user-bar", "rule", "strip-free") or style.color is None:
                continue
            ground = style.bgcolor or palette["text"].bgcolor
            assert ground is not None
            pair = [Color.from_rich_color(colour) for colour in (style.color, ground)]
            assert contrast(*pair) >= (3 if name.startswith("strip-") else READABLE), name


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\", True),
        ("\x1b]11;rgb:fb/fa/f7\x07", True),
        ("\x1b]11;rgba:1212/1414/1c1c/ffff\x1b\\", False),
        ("\x1b]11;rgb:0/0/0\x07", False),
    ],
)
def test_the_answer_of_a_terminal_is_taken_out_of_what_was_typed(answer: str, light: bool) -> None:
    assert extract_background(f"fix {answer}it\r") == ("fix it\r", light)
    for cut in range(2, len(answer)):
        late = LateAnswer()
        first, told = late.take("a" + answer[:cut])
        rest, told_later = late.take(answer[cut:] + "b")
        assert (first + rest, told_later if told is None else told) == ("ab", light), cut


@pytest.mark.parametrize("keys", ["", "fix it", "\x1b", "\x1b[A", "\x1b]0;title\x07x"])
def test_terminal_answer_parser_leaves_other_input(keys: str) -> None:
    assert extract_background(keys) == (keys, None)
    assert LateAnswer().take(keys) == (keys, None)


def test_terminal_answer_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_features, "ANSWER_TIMEOUT_S", -1.0)
    assert LateAnswer().take("\x1b]1") == ("\x1b]1", None)


def test_the_theme_fits_the_terminal() -> None:
    assert fitting_theme(light=False, colours=1 << 24) == "crushpy-dark"
    assert fitting_theme(light=True, colours=256) == "crushpy-light-256"
    assert fitting_theme(light=False, colours=256) == "crushpy-dark-256"
    assert fitting_theme(light=True, colours=0) == "crushpy-light"
    assert fitting_theme(light=False, colours=16) == "ansi-dark"
    assert fitting_theme(light=True, colours=16) == "ansi-light"


def test_the_environment_is_asked_where_the_terminal_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, light in (("0;15", True), ("15;0", False), ("0;default;15", True), ("", False)):
        monkeypatch.setenv("COLORFGBG", value)
        assert terminal_features.guess_light_background() is light


# --- the welcome -------------------------------------------------------------------------------------------

GREETING = Greeting(
    "crushpy 1.2.3 · ~/shop · main",
    {"sandbox": "bubblewrap", "reads": "AGENTS.md", "last here": "“fix it”, 2h ago · F2 resumes it"},
)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (80, 18), (40, 20)])
def test_welcome_names_model_folder_and_suggestions(size: tuple[int, int]) -> None:
    text = card(GREETING, Size(*size)).text
    words = ("crushpy 1.2.3", "~/shop · main", "AGENTS.md", "bubblewrap", "“fix it”, 2h ago", "F2 resumes it")
    for part in (*words, "Ctrl+P", "@", "!", "?"):
        assert part in " ".join(text.split())
    assert (WORDMARK[0] in text) == (size[1] >= 22)
    evil = Greeting("\x1b]0;x\x07~ \n", {"reads": "\x1b[31m", "last here": "\x07"})
    assert not set("\x1b\x07") & set(card(evil, Size(*size)).text)


def test_welcome_is_centred() -> None:
    lines = card(GREETING, Size(80, 40)).text.split("\n")
    assert 8 <= next(at for at, line in enumerate(lines) if line.strip()) <= 14
    mark = next(line for line in lines if WORDMARK[0] in line)
    assert abs(mark.index(WORDMARK[0]) + len(WORDMARK[0]) / 2 - 32) <= 1


@pytest.mark.slow
async def test_a_new_conversation_greets_until_the_first_prompt(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    async with start(size=(120, 40)) as app:
        await app.sees("crushpy 0", "no AGENTS.md here", "Ctrl+P commands")
        await app.say("hi")
        await app.sees("Hello.")
        await app.sees_no("crushpy 0")
        await app.rests()
    async with start(size=(100, 24)) as app:
        await app.sees("crushpy 0", "last here", "“hi”")
    async with start(size=(40, 12)) as app:
        await app.opened()
        assert "crushpy 0" not in app.text


# --- the window over time ----------------------------------------------------------------------------------


def test_requests_are_those_that_were_reported_with_compactions_marked() -> None:
    told = [("a", Usage(100, 9, 50)), ("a", Usage()), ("a", Usage(80, 5, 120)), ("b", Usage(30, 1))]
    assert requests_made(told) == [RequestMade(150, 50), RequestMade(200, 120), RequestMade(30, 0, True)]
    assert requests_made([]) == []


@pytest.mark.parametrize(("width", "height", "many"), itertools.product((10, 40, 120), (3, 6), (1, 7, 500)))
def test_the_chart_fits_and_is_as_high_as_the_window_was_full(width: int, height: int, many: int) -> None:
    requests = [RequestMade(1_000 * (n % 10), 500 * (n % 10), n == many // 2) for n in range(many)]
    rows = window_chart(requests, 10_000, width, height, 0.75).plain.split("\n")
    assert len(rows) == height + 2
    assert all(len(row) <= width for row in rows)
    assert rows[0].count("▼") == 1
    if many >= 10 and width > 10:
        assert any(set(row) & set("▁▂▃▄▅▆▇█") for row in rows[2:])
        assert "▒" in "".join(rows)


def test_chart_is_left_out_when_there_is_no_data() -> None:
    assert window_chart([], 10_000, 80, 6).plain == ""
    assert window_chart([RequestMade(10)], 0, 80, 6).plain == ""


# --- what was carried --------------------------------------------------------------------------------------


def test_card_describes_what_was_carried() -> None:
    assert carried_words({}) == carried_words({"paths": (0, 0, 0)}) == ""
    assert carried_words({"paths": (1, 0, 1)}) == "1 of 1 recorded facts carried"
    assert carried_words({"paths": (3, 0, 3), "todos": (2, 1, 2)}) == "5 of 5 recorded facts carried"
    lost = {"paths": (40, 9, 39), "commands": (8, 1, 8), "requests": (2, 0, 0)}
    assert carried_words(lost) == "47 of 50 recorded facts carried; not carried: 1 path, 2 requests of yours"


def test_the_headline_says_the_same_as_the_figure_since_the_start() -> None:
    assert carried_words({"requests": (1, 0, 1)}, (74, 74)) == "74 of 74 recorded facts carried"
    assert carried_words({"requests": (1, 0, 1)}, (74, 70)) == "70 of 74 recorded facts carried"
    assert (
        carried_words({"requests": (2, 0, 1)}, (74, 70))
        == "1 of 2 recorded facts carried; not carried: 1 request of yours"
    )


async def test_prose_stops_at_a_hundred_and_ten_columns(start: Start, llm: ScriptedLLM) -> None:
    llm.script("word " * 100)
    async with start(size=(180, 30)) as app:
        await app.say("go")
        await app.rests()
        rows = [line for line in app.text.splitlines() if line.count("word") > 3]
        assert rows and all(row.rindex("word") < 110 for row in rows)  # beside them is the panel


async def test_words_are_a_key_away(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.say("/glossary")
        await app.sees("compaction", "Ends a session")
        await app.press("escape")
        await app.sees_no("The moment a session ends")
