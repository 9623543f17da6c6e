"""Whatever a model or a tool says, the terminal only ever gets harmless, honest text."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crushpy.security.sanitize import clean, encodable, one_line, reveal, reveal_pieces

SINGLE = "\x1b[]\x07\\\x9b\x9d\x9cPa0;\r\n\t \x00\x7f\u202e\u200b\u200d\ufe0fé😀\ud800"
PIECES = st.sampled_from([*SINGLE, "52;c;aGk=", "31m", "\x1b\\", "(B"])
TEXTS = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(st.characters(), max_size=60))


@given(TEXTS)
@settings(max_examples=500)
def test_cleaned_text_has_no_control_or_direction_characters(text: str) -> None:
    shown = clean(text)
    for char in shown:
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"), repr(char)
        assert unicodedata.bidirectional(char) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
    shown.encode()


@given(TEXTS)
def test_clean_text_is_unchanged(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(
    st.text(
        st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="\u115f\u1160\u3164\uffa0")
    )
)
def test_letters_numbers_signs_and_spaces_of_any_script_stay(text: str) -> None:
    assert clean(text) == text
    assert clean(f"a\n\tb {text}") == f"a\n\tb {text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]52;c;ZXZpbA==\x07copied", "copied"),
        ("\x1b]52;c;ZXZpbA==\x1b\\copied", "copied"),
        ("\x1b]0;title\x9cx", "x"),
        ("\x9d0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1bPq#0;2;0\x1b\\sixel", "sixel"),
        ("\x1b_app\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\x", "x"),
        ("\x1bc\x1b7\x1b(Breset", "reset"),
        ("\x1b[?1049h\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b\x1b[31m[32mx", "[32mx"),
        ("\x1b]0;never closed", "0;never closed"),
        ("\x1b]0;not closed here\nnext line\x07", "0;not closed here\nnext line"),
        ("\x1b[31", "31"),
        ("ends with \x1b", "ends with "),
        ("bell\x07 back\x08space nul\x00 del\x7f", "bell backspace nul del"),
        ("dos\r\nunix\n10%\r20%", "dos\nunix\n10%\n20%"),
        ("user\u202etxt.exe", "user<U+202E>txt.exe"),
        ("a\u2066b\u2069", "a<U+2066>b<U+2069>"),
        ("pass\u200bword", "pass<U+200B>word"),
        ("ad\u200dmin", "ad<U+200D>min"),
        ("\U000e0041hidden", "<U+E0041>hidden"),
        ("\ufeffstart", "<U+FEFF>start"),
        ("\udcff", "\ufffd"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f نمی\u200cخواهم", "👨\u200d👩\u200d👧 ❤\ufe0f نمی\u200cخواهم"),
    ],
)
def test_tricks_are_taken_out_or_made_visible(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.slow
@given(TEXTS)
@settings(max_examples=500)
def test_text_for_a_decision_shows_every_character(text: str) -> None:
    pieces = list(reveal_pieces(text))
    assert sum(1 if hidden else len(piece) for piece, hidden in pieces) == len(text)
    shown = reveal(text)
    assert shown == "".join(piece for piece, _ in pieces)
    for char in shown:
        assert char in "\n\t \u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cs", "Zs", "Zl", "Zp")
    assert reveal(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain -- text [bold]é漢 😀", "plain -- text [bold]é漢 😀"),
        ("echo hi \x1b]0;touch X; \x07 end", "echo hi <ESC>]0;touch X; <BEL> end"),
        ("\x1b[2K\x1b[8mhidden", "<ESC>[2K<ESC>[8mhidden"),
        ("\x9b31m \x9d0;x\x9c", "<U+009B>31m <U+009D>0;x<U+009C>"),
        ("# a\rtouch X", "# a<CR>touch X"),
        ("echo \\\r\n touch X", "echo \\<CR>\n touch X"),
        ("a\n\tb", "a\n\tb"),
        ("\x00\x08\x0b\x0c\x1c\x7f\x85\u2028\u2029", "<NUL><BS><VT><FF><FS><DEL><U+0085><U+2028><U+2029>"),
        ("user\u202etxt.exe", "user<U+202E>txt.exe"),
        ("a\u200bb\u2060c\ufeffd\u00ade", "a<U+200B>b<U+2060>c<U+FEFF>d<U+00AD>e"),
        ("echo hi\u00a0# ; touch X", "echo hi<U+00A0># ; touch X"),
        ("\u3000\u2003\u2800", "<U+3000><U+2003><U+2800>"),
        ("ad\u200dmin па\u200cр 漢\u200d字", "ad<U+200D>min па<U+200C>р 漢<U+200D>字"),
        (
            "👨\u200d👩\u200d👧 ❤\ufe0f 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3",
            "👨\u200d👩\u200d👧 ❤\ufe0f 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3",
        ),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
        ("rm\ufe0f ❤\ufe0f\ufe0f", "rm<U+FE0F> ❤\ufe0f<U+FE0F>"),
        ("\U000e0041\udcff", "<U+E0041><U+DCFF>"),
    ],
)
def test_hidden_characters_are_named_for_a_decision(text: str, shown: str) -> None:
    assert reveal(text) == shown


def test_single_line_has_no_line_breaks() -> None:
    assert one_line("  a\n\tb\r\nc\x1b[31m  d ") == "a b c d"
    assert one_line("\n") == ""


@pytest.mark.slow
@pytest.mark.sampled(every=4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["\x1b]0;", "\x1b[", "\x1b[0", "\x9d", "\x1bP" + "x" * 50, "\u202e", "\u200d", "\r"]
)
def test_megabytes_of_anything_are_done_long_before_the_timeout(piece: str) -> None:
    """A pattern that is not linear would take hours here."""
    assert "\x1b" not in clean(piece * (500_000 // len(piece)))
    assert "\x1b" not in reveal(piece * (500_000 // len(piece)))


def test_lone_surrogates_are_marked_and_pairs_joined() -> None:
    broken = {"a\ud800": ["\udcff x", "\ud83d\ude00", 7, None], "plain": "ü"}
    mended = encodable(broken)
    assert mended == {"a\ufffd": ["\ufffd x", "\U0001f600", 7, None], "plain": "ü"}


def test_a_text_of_megabytes_is_cleaned_as_its_lines_are() -> None:
    line = "plain \x1b[31mred\x1b[0m words \u202e and \N{ROCKET}\u200d\N{ROCKET}\r\n"
    assert clean(line * 12_000) == clean(line) * 12_000
    assert clean("x" * 500_000 + "\x1b]52;c;AAAA\x07" + "y\n") == "x" * 500_000 + "y\n"
