"""What each item looks like, and that nothing foreign reaches the terminal as anything but text."""

import re
from typing import Any

import msgspec
import pytest
from rich.console import Console
from textual.color import Color
from transcript_host import DIFF, EVERYTHING, stage

from crushpy.core.boundary import Boundary
from crushpy.core.messages import (
    CallDecision,
    Diff,
    Display,
    Excerpt,
    FileList,
    ImageInfo,
    TaskReport,
    Terminal,
    Todo,
    TodoList,
    TouchedFile,
)
from crushpy.core.timeline_notes import decision_words
from crushpy.tui.items import (
    BoundaryItem,
    ErrorItem,
    NoticeItem,
    ReplyItem,
    ThinkingItem,
    ToolItem,
    TranscriptItem,
    UserItem,
    source_text,
)

EVIL = (
    "a\x1b]52;c;aGk=\x07b\x1b[2Jc\x9b31md\x1b]0;title\x1b\\e\u202egnp.exe\x00\x08 [bold]x[/bold] "
    "[@click=app.quit]y[/] "
    "&#x202e; &#27;[31m &NewLine;z <b>w</b> [l](http://e.x/&#27;]52;c;x&#7;) ![i](javascript:x) http://u.v/\x1b[1m"
)


async def shown(item: TranscriptItem, width: int = 100, *, opened: bool = True) -> str:
    async with stage([item], (width, 60)) as here:
        if opened:
            here.view.fold_all(False)
        await here.settle()
        return here.text().rstrip()


async def test_transcript_items_fit_80_columns() -> None:
    async with stage(EVERYTHING, (80, 70)) as here:
        text = here.text()
        for line in (
            "▌ Fix the bug\n▌ in the shop",
            "  ▸ Thought for 3 s  First the price.",
            "  ▸ ✓ Ran pytest -q · 0.4 s",
            "  ▾ ✓ Edited shop.py +4 −3",
            "      ✓ price\n      ◐ tax",
            "  ▸ ✓ Read 1 file, searched once",
            "  ▸ ✗ Run false\n      it failed",
            "  ▸ ● Run make\n       two\n       three\n       four",
            "  · The window is half full\n  ! No price is known",
            "  ✗ The key was refused\n  → Set OPENAI_API_KEY and try again",
        ):
            assert line in text


async def test_a_reply_is_drawn_as_the_markdown_that_it_is() -> None:
    text = """# Title
Some *text* with `code`,
and more.
1. one
2. two

   still two
   ```sh
   ls
   ```
3. three
* other
> quote
> - inside

| left | right |
|---|---:|
| a | 1 |

***
~~old~~ \\*literal\\* &amp; [docs](guide.md)"""
    assert (await shown(ReplyItem(text), 40)).split("\n") == [
        "  Title",
        "",
        "  Some text with code, and more.",
        "",
        "  1. one",
        "  2. two",
        "",
        "     still two",
        "      ls                          copy",
        "  3. three",
        "",
        "  • other",
        "",
        "  ▎ quote",
        "  ▎ • inside",
        "",
        "  left │ right",
        "  ─────┼──────",
        "  a    │     1",
        "",
        "  " + "─" * 37,
        "",
        "  old *literal* & docs (guide.md)",
    ]


async def test_calls_and_notices_stand_close_together_and_all_else_apart() -> None:
    call = ToolItem("1", "job_kill", "1")
    async with stage([call, call, NoticeItem("n"), UserItem("u"), call]) as here:
        line = "    ✓ Stopped 1"
        assert here.lines()[:7] == [line, line, "  · n", "", "▌ u", "", line]
        here.view.replace(here.view.keys()[1], UserItem("v"))
        await here.settle()
        assert here.lines()[:5] == [line, "", "▌ v", "", "  · n"]
        here.view.remove_item(here.view.keys()[1])
        await here.settle()
        assert here.lines()[:2] == [line, "  · n"]


async def test_a_denied_call_says_why_in_its_line() -> None:
    by_hook = CallDecision("denied", "hook", 0, reason="a hook says deny: keep main")
    text = await shown(ToolItem("1", "bash", "git push", state="denied", decision=by_hook), opened=False)
    assert "git push" in text and "denied: a hook says deny: keep main" in text
    by_rule = CallDecision("denied", "rules", 0, reason="denied by the rule bash(rm *)")
    text = await shown(ToolItem("1", "bash", "rm x", state="denied", decision=by_rule), opened=False)
    assert text.count("denied") == 1 and "denied by the rule bash(rm *)" in text
    assert "denied" in await shown(ToolItem("1", "bash", "rm x", state="denied"), opened=False)


async def test_a_small_diff_is_open_with_line_numbers_and_signs() -> None:
    text = await shown(ToolItem("1", "edit", "shop.py", display=Diff("shop.py", DIFF, 4, 3)), opened=False)
    assert "       1   import os\n       2 - def price(n):\n" in text
    assert "       2 + def price(number):\n       3 +     # with tax\n" in text
    assert "      41 + last = 2" in text
    assert "      40 - last = 1" in text
    assert "@@" not in text


async def test_a_diff_stands_side_by_side_where_there_is_room() -> None:
    item = ToolItem("1", "edit", "shop.py", display=Diff("shop.py", DIFF, 4, 3))
    lines = (await shown(item, 140)).split("\n")
    assert any(re.search(r"2 - def price\(n\): +│ +2 \+ def price\(number\):", line) for line in lines)
    assert any(re.search(r"^ +│ +4 \+     return number", line) for line in lines)


async def test_a_large_diff_is_closed() -> None:
    body = "@@ -1,0 +1,60 @@\n" + "".join(f"+line {n}\n" for n in range(60))
    item = ToolItem("1", "write", "new.py", display=Diff("new.py", body, 60, 0, created=True))
    assert await shown(item, opened=False) == "  ▸ ✓ Wrote new.py new +60"


async def test_code_and_diffs_are_coloured() -> None:
    items = [
        ToolItem("1", "view", "a.py", display=Excerpt("a.py", "def f():\n    return 'x'", "python")),
        ToolItem("2", "edit", "shop.py", display=Diff("shop.py", DIFF, 4, 3)),
    ]
    async with stage(items) as here:
        here.view.fold_all(False)
        await here.settle()
        for width in (80, 140, 61):
            await here.pilot.resize_terminal(width, 60)
            await here.settle()
            for words in ("def f", "def price(number)"):
                strip = here.strips()[here.find(words)[1]]
                colours = {segment.style.color for segment in strip if segment.style and segment.text.strip()}
                assert len(colours) > 1


@pytest.mark.slow
async def test_a_failed_command_is_told_once() -> None:
    display = Terminal("make all", "compiling\n\tfailed", 2, 1.5, "exit code 2")
    item = ToolItem("1", "bash", "make all", "failed", display, "compiling\n\tfailed\n[exit code 2]")
    assert (await shown(item)).split("\n") == [
        "  ▾ ✗ Ran make all · exit 2 · 1.5 s",
        "      $ make all",
        "       compiling",
        "           failed",
    ]
    assert (await shown(item, opened=False)).split("\n") == [
        "  ▸ ✗ Ran make all · exit 2 · 1.5 s",
        "       compiling",
        "           failed",
    ]
    silent = ToolItem(
        "1", "bash", "false", "failed", Terminal("false", "", 1, 0.0, "exit code 1"), "[exit code 1]"
    )
    assert await shown(silent, opened=False) == "  ▸ ✗ Ran false · exit 1"
    assert await shown(silent) == "  ▾ ✗ Ran false · exit 1\n      $ false"


async def test_command_shows_its_exit_beside_it_or_below() -> None:
    display = Terminal("make all", "done", 2, 1.5, "timed out")
    text = await shown(ToolItem("1", "bash", "make all", "failed", display))
    assert text.split("\n")[0] == "  ▾ ✗ Ran make all · exit 2 · timed out · 1.5 s"
    assert text.count("timed out") == 1
    why = "a background process still holds the output; it is job1 now (job_output, job_kill)"
    display = Terminal("make all", "done", 2, 1.5, f"exit code 2; {why}")
    text = await shown(ToolItem("1", "bash", "make all", "failed", display))
    assert (
        text.split("\n")[0]
        == "  ▾ ✗ Ran make all · exit 2 · a background process still holds the ou… · 1.5 s"
    )
    assert text.split("\n")[-1] == f"      {why}"
    display = Terminal("npm start", "boom", 7, note="job1 ended with exit code 7")
    text = await shown(ToolItem("1", "job_output", "job1", "failed", display))
    assert text.split("\n")[0] == "  ▾ ✗ Read the output of job1 · job1 ended with exit code 7"


@pytest.mark.slow
async def test_counts_use_the_singular_for_one() -> None:
    excerpt = ToolItem("1", "view", "a.py", display=Excerpt("a.py", "x = 1", "python"))
    assert " · 1 line\n" in await shown(excerpt)
    task = ToolItem("1", "task", "look", display=TaskReport("s", "done", (TouchedFile("a", "edited"),), 1))
    assert "1 step · 1 file" in await shown(task, opened=False)
    picture = ImageInfo("image/png", 1_234, "a.png", 64, 48)
    assert "[image: a.png, image/png, 64x48, 1,234 bytes]" in await shown(UserItem("see", (picture,)))
    assert "1 line, 5,000 characters in all" in await shown(UserItem("x" * 5_000), opened=False)


async def test_very_long_output_shows_its_beginning_and_its_end() -> None:
    output = "\n".join(f"line {n}" for n in range(5_000))
    async with stage([ToolItem("1", "bash", "yes", output=output)]) as here:
        here.toggle(here.view.keys()[0])
        await here.settle()
        text = here.all_text()
        assert "line 0\n" in text
        assert text.endswith("line 4999")
        assert "… 3,000 lines left out …" in text


async def test_lists_of_files_say_how_many_more_there_are() -> None:
    text = await shown(ToolItem("1", "glob", "*.py", display=FileList(("a.py", "b.py"), 12)))
    assert text == "  ▾ ✓ Searched *.py · 12 files\n       a.py\n       b.py\n      … 10 more"


async def test_the_card_shows_a_trigger_of_a_newer_version_as_it_is() -> None:
    newer: Any = ("teleport", 0, 0, 0.0, 0.0, "oracle")
    text = await shown(BoundaryItem(Boundary("b", "p", "c", *newer), "# Goal"))
    assert "── Context compacted ──" in text and "teleport" in text and "Goal" in text


async def test_the_card_of_a_compaction_says_who_why_how_much_and_what_can_be_done() -> None:
    made = ("model", "claude", "summary.md")
    card = BoundaryItem(
        Boundary("b", "p", "c", "auto", 150_000, 20_500, 0.0312, 4.2, *made, threshold=0.75), "# Goal"
    )
    closed = await shown(card, opened=False)
    assert "── Context compacted · automatic at 75% ──" in closed
    assert "150,000 → ~20,500 tokens (estimated)" in closed
    assert len(closed.splitlines()) == 3 and "threshold" not in closed, "headline, bar, one line"
    async with stage([card], (100, 60)) as here:
        here.view.focus()
        await here.pilot.press("home")
        await here.settle()
        text = here.text()
    assert "the window reached the threshold" in text
    assert "$0.0312 · 4.2s" in text
    assert "summary by claude · template summary.md" in text
    assert "p parent   u undo   t template   l tree" in text
    assert "Goal" not in text
    assert "Goal" in await shown(card)
    assert "u undo" not in await shown(BoundaryItem(Boundary("b", "p", "c", "agent"), undone=True))


async def test_a_long_prompt_is_folded() -> None:
    prompt = UserItem("\n".join(f"line {n}" for n in range(200)))
    text = await shown(prompt, opened=False)
    assert "line 11" in text
    assert "line 12" not in text
    assert "200 lines" in text
    assert "line 150" in await shown(prompt)


async def test_thinking_shows_its_last_words_while_it_goes_on() -> None:
    async with stage() as here:
        key = here.view.add(ThinkingItem("", done=False))
        here.view.stream(key, "first idea\nsecond ")
        here.view.stream(key, "idea")
        await here.settle()
        assert here.lines()[0] == "  ▸ Thinking…  second idea"
        here.toggle(key)
        here.view.stream(key, "\n\nthird idea")
        await here.settle()
        assert here.lines()[:6] == [
            "  ▾ Thinking…",
            "  │ first idea",
            "  │ second idea",
            "  │",
            "  │ third idea",
            "",
        ]
        here.view.finish(key)
        await here.settle()
        assert here.lines()[0] == "  ▾ Thought"


async def test_the_lines_of_thinking_stay_lines() -> None:
    thought = "First:\nread *it*\nthen `write`\n\n- one\n  more\n- two"
    assert (await shown(ThinkingItem(thought), 60)).split("\n") == [
        "  ▾ Thought",
        "  │ First:",
        "  │ read it",
        "  │ then write",
        "  │",
        "  │ • one",
        "  │   more",
        "  │ • two",
    ]


def test_a_copy_of_a_call_holds_what_the_call_shows() -> None:
    def copied(display: Display) -> str:
        return source_text(ToolItem("1", "tool", "about", display=display))

    assert copied(Terminal("ls", "a\nb", 0)) == "tool about\n$ ls\na\nb"
    assert copied(Diff("x", "@@ -1 +1 @@\n-a\n+b\n", 1, 1)) == "tool about\n@@ -1 +1 @@\n-a\n+b\n"
    assert copied(FileList(("a", "b"))) == "tool about\na\nb"
    assert copied(TodoList((Todo("a", "completed"), Todo("b")))) == "tool about\n[x] a\n[ ] b"
    assert copied(Excerpt("title", "text")) == "tool about\ntext"
    assert source_text(ToolItem("1", "tool", "about", output="out")) == "tool about\nout"


def evil_items() -> list[TranscriptItem]:
    return [
        UserItem(EVIL),
        ReplyItem(
            f"{EVIL}\n\n- {EVIL}\n\n> {EVIL}\n\n| {EVIL} |\n|---|\n| {EVIL} |\n\n"
            f"```{EVIL}\n{EVIL}\n```\n\n# {EVIL}"
        ),
        ThinkingItem(EVIL),
        ToolItem("1", EVIL, EVIL, "done", Terminal(EVIL, EVIL, 1, 1.0, EVIL)),
        ToolItem("2", "edit", EVIL, "done", Diff(EVIL, f"@@ -1 +1 @@\n-{EVIL}\n+{EVIL}\n", 1, 1)),
        ToolItem("3", "grep", EVIL, "failed", FileList((EVIL, EVIL), 3), EVIL),
        ToolItem("4", "todos", EVIL, "done", TodoList((Todo(EVIL),))),
        ToolItem("5", "view", EVIL, "done", Excerpt(EVIL, EVIL, EVIL)),
        ToolItem("6", "bash", EVIL, "running", None, EVIL),
        NoticeItem(EVIL),
        ErrorItem(EVIL, EVIL),
        BoundaryItem(
            Boundary("b", "p", "c", EVIL, summary_model=EVIL, template=EVIL, problem=EVIL), EVIL, EVIL
        ),
    ]


SENT = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;id=[0-9]+;(?:https?|mailto):[!-~]*\x1b\\|\x1b\]8;;\x1b\\")
"""Colours, and links that say where they lead."""


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("width", [20, 80, 140])
async def test_transcript_draws_no_escape_sequence_or_hidden_character(width: int, opened: bool) -> None:
    async with stage(evil_items(), (width, 400)) as here:
        here.view.fold_all(not opened)
        await here.settle()
        console = Console(color_system="truecolor")
        for strip in here.strips():
            left = SENT.sub("", strip.render(console))
            assert left.replace("\ufe0f", "").isprintable(), left
            assert "\u202e" not in left
        assert "[bold]x[/bold]" in here.text() or width == 20
        assert "<U+202E>" in here.all_text()


@pytest.mark.slow
async def test_streamed_pieces_of_an_escape_sequence_do_not_become_one() -> None:
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        for character in "safe \x1b]52;c;aGk=\x07 text \x1b[31mred \x1b":
            here.view.stream(key, character)
            await here.pilot.pause()
            assert all(strip.text.isprintable() for strip in here.strips())
        here.view.finish(key)
        await here.settle()
        assert here.lines()[0] == "  safe  text red"


async def test_a_change_of_theme_changes_every_colour_and_no_letter() -> None:
    async with stage(EVERYTHING, (80, 70)) as here:
        text, strips = here.text(), here.strips()
        here.app.theme = "textual-light"
        await here.settle()
        assert here.text() == text
        background = here.app.theme_variables["background"]
        for strip in here.strips():
            assert strip not in strips or not strip.text.strip()
        style = next(iter(here.strips()[0])).style
        assert style is not None
        assert style.bgcolor is not None
        assert Color.parse(background).brightness > 0.5


async def test_an_ansi_theme_leaves_the_colours_to_the_terminal() -> None:
    async with stage(EVERYTHING, (80, 70)) as here:
        here.app.theme = "ansi-dark"
        await here.settle()
        for strip in here.strips():
            for segment in strip:
                assert segment.style is not None
                for colour in (segment.style.color, segment.style.bgcolor):
                    assert colour is None or colour.triplet is None, (segment.text, colour)


async def test_transcript_is_legible_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with stage(EVERYTHING, (80, 70)) as here:
        for strip in here.strips():
            for segment in strip:
                assert segment.style is not None
                for colour in (segment.style.color, segment.style.bgcolor):
                    assert colour is None or colour.triplet is None or len(set(colour.triplet)) == 1
        assert "+ def price(number)" in here.text()
        assert "███░" not in here.text() and "▀" not in here.text()
        assert "·····" in here.text(), "what is free"


async def test_a_call_that_ends_between_two_frames_is_drawn_as_ended() -> None:
    async with stage([], (100, 20)) as here:
        key = here.view.add(ToolItem("1", "task", "look", state="running"))
        await here.settle()
        cache = here.view.cache
        cache.stream(0, "it works\n")
        cache.rows(0)  # looked at before the frame in which it is drawn
        cache.flush()
        here.view.replace(key, ToolItem("1", "task", "look", display=TaskReport("s", "done", (), 2, 0.0)))
        here.view.finish(key)
        await here.settle()
        assert "✓ Task look" in here.text() and "2 steps" in here.text()


async def test_edit_shows_once_who_allowed_it() -> None:
    decision = CallDecision("allowed", "user", 0.0, answer="once")
    edit = ToolItem("1", "edit", "a.py", "done", Diff("a.py", "@@ -1,1 +1,1 @@\n-a\n+b", 1, 1))
    item = msgspec.structs.replace(edit, decision=decision)
    async with stage([item], (100, 60)) as here:
        assert "allowed once" not in here.text(), "only on focus"
        here.view.focus()
        await here.pilot.press("home")
        await here.settle()
        assert here.text().count("allowed once by you, ") == 1
    rule = "allowed by write(./**) of the mode that allows edits"
    assert "edits allowed" not in decision_words(CallDecision("allowed", "rules", 0.0, rule, mode="edits"))
