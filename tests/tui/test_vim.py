"""vim's keys: what each does to a text and a cursor, and that no keys ever break it."""

import pytest
from driving import Start, start
from hypothesis import given, settings
from hypothesis import strategies as some
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.tui.widgets.vim import Edited, Vim

__all__ = ["start"]


def typed(text: str, keys: str) -> str:
    """The text after these keys, with `|` where the cursor is. `<esc>` is a key."""
    vim = Vim()
    vim.mode = "normal"
    now = Edited(text.replace("|", "", 1), text.index("|"))
    for key in keys.replace("<esc>", "\x1b"):
        if vim.mode == "insert":
            if key == "\x1b":
                now = vim.leave_insert(*now)
            else:
                now = Edited(now.text[: now.cursor] + key + now.text[now.cursor :], now.cursor + 1)
        else:
            now = vim.press(key, *now)
    return now.text[: now.cursor] + "|" + now.text[now.cursor :]


@pytest.mark.parametrize(
    ("text", "keys", "becomes"),
    [
        ("one |two three", "w", "one two |three"),
        ("one two |three", "b", "one |two three"),
        ("|one two", "e", "on|e two"),
        ("one |two", "0", "|one two"),
        ("  on|e", "^", "  |one"),
        ("|one", "$", "on|e"),
        ("one\ntw|o", "gg", "|one\ntwo"),
        ("|one\ntwo\nthree", "G", "one\ntwo\n|three"),
        ("|one\ntwo\nthree", "2G", "one\n|two\nthree"),
        ("|abc", "2l", "ab|c"),
        ("ab|c", "h", "a|bc"),
        ("|abc\nde", "j", "abc\n|de"),
        ("|abc", "x", "|bc"),
        ("|abc", "2x", "|c"),
        ("one\n|two\nthree", "dd", "one\n|three"),
        ("one\n|two", "dd", "|one"),
        ("|one\ntwo\nthree", "2dd", "|three"),
        ("|one two three", "dw", "|two three"),
        ("|one two three", "2dw", "|three"),
        ("|one two three", "d2w", "|three"),
        ("one |two", "D", "one| "),
        ("one |two", "d$", "one| "),
        ("one |two\nx", "dj", "|"),
        ("|one two", "cwnew<esc>", "ne|w two"),
        ("|one two", "ccnew<esc>", "ne|w"),
        ("one |two", "Cnew<esc>", "one ne|w"),
        ("|one\ntwo", "yyp", "one\n|one\ntwo"),
        ("one\n|two", "yyP", "one\n|two\ntwo"),
        ("|one two", "ywP", "one| one two"),
        ("|ab", "xp", "b|a"),
        ("|one", "onew<esc>", "one\nne|w"),
        ("|one", "Onew<esc>", "ne|w\none"),
        ("o|ne", "ix<esc>", "o|xne"),
        ("o|ne", "ax<esc>", "on|xe"),
        ("o|ne", "Ix<esc>", "|xone"),
        ("o|ne", "Ax<esc>", "one|x"),
        ("|one", "rx", "|xne"),
        ("|one", "2rx", "x|xe"),
        ("|one, two", "f,", "one|, two"),
        ("one, tw|o", "F,", "one|, two"),
        ("|one, two", "t,", "on|e, two"),
        ("one, tw|o", "T,", "one,| two"),
        ("|one, two", "dt,", "|, two"),
        ("|one, two", "df,", "| two"),
        ("one t|wo three", "diw", "one | three"),
        ("one t|wo three", "daw", "one |three"),
        ("one t|wo three", "ciwx<esc>", "one |x three"),
        ("|abc", "~", "A|bc"),
        ("|abc", "fz", "|abc"),
        ("|", "dd", "|"),
        ("|", "x", "|"),
    ],
)
def test_a_command_does_what_vim_does(text: str, keys: str, becomes: str) -> None:
    assert typed(text, keys) == becomes


KEYS = some.text(alphabet="hjklwbe0^$gGxdcyDCYSspPoOiIaArR~u.123fFtT;,q \x1b\x12", max_size=40)
TEXTS = some.text(alphabet="ab _.\n\té", max_size=30)


@pytest.mark.slow
@given(TEXTS, KEYS)
@settings(max_examples=300, deadline=None)
def test_vim_survives_any_keys(text: str, keys: str) -> None:
    shown = typed("|" + text, keys)
    assert 0 <= shown.index("|") < len(shown)


@pytest.fixture
def vim_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_EDITING", "vim")


@pytest.mark.slow
async def test_vim_enters_normal_mode_with_esc_and_sends_with_enter(
    start: Start, llm: ScriptedLLM, vim_home: None
) -> None:
    llm.script("First answer.", Stall(Reply("Half an answer", chunk=4), after=2), "Third answer.")
    async with start() as app:
        prompt = app.chat.prompt
        await app.type("say wrong words")
        assert not prompt.has_class("-normal")
        await app.sees("INSERT")
        await app.press("escape")
        await app.sees("NORMAL")
        assert prompt.has_class("-normal")
        assert prompt.text == "say wrong words"
        await app.press("b", "b", "d", "w", "u", "ctrl+r")
        assert prompt.text == "say words", "Ctrl+R makes again here, it does not open the sessions"
        await app.press("enter")
        await app.until(lambda: "First answer." in app.text, "the answer")
        assert not prompt.has_class("-normal"), "the next prompt is there to be written"
        await app.type("go on")
        await app.press("enter")
        await app.until(lambda: "Half" in app.text, "half an answer")
        await app.type("later")
        await app.press("escape")
        assert app.conversation.busy, "the first Esc only ends inserting"
        await app.press("escape")
        await app.until(lambda: not app.conversation.busy, "the end of the turn")
        assert prompt.text == "later"


@pytest.mark.slow
async def test_vim_undoes_and_redoes_each_command(start: Start, llm: ScriptedLLM, vim_home: None) -> None:
    async with start() as app:
        prompt = app.chat.prompt
        await app.type("one two three")
        await app.press("escape", "0", "d", "w", "x", "A")
        await app.type("!")
        await app.press("escape")
        assert prompt.text == "wo three!"
        for text in ("wo three", "two three", "one two three"):
            await app.press("u")
            assert prompt.text == text
        await app.press("2", "ctrl+r")
        assert prompt.text == "wo three"
        await app.press("2", "u")
        assert prompt.text == "one two three"


@pytest.mark.slow
async def test_history_and_pastes_work_with_vims_keys(start: Start, llm: ScriptedLLM, vim_home: None) -> None:
    llm.script("Yes.")
    async with start() as app:
        prompt = app.chat.prompt
        await app.type("an earlier prompt")
        await app.press("enter")
        await app.until(lambda: "Yes." in app.text, "the answer")
        await app.type("draft")
        await app.press("escape", "k")
        assert prompt.text == "an earlier prompt"
        await app.press("j")
        assert prompt.text == "draft"
        prompt.paste_text("pasted ")
        assert "pasted" in prompt.text
        await app.press("c", "c")
        await app.type("/hel")
        await app.until(lambda: "/help" in app.text, "what is offered")
