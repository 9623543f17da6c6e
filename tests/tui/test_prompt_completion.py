"""Completion of files after @ and of commands after /."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from prompt_host import COMMANDS, Host, type_text
from textual.pilot import Pilot

from crushpy.core.app_commands import AppCommand
from crushpy.tui.widgets import file_finder
from crushpy.tui.widgets.completer import MAX_PATHS_AT_ONCE, CompletionList
from crushpy.tui.widgets.file_finder import FileFinder
from crushpy.tui.widgets.prompt import PromptInput

PATHS = ["README.md", "src/main.py", "src/prompt_view.py", "src/my notes.txt", "tests/test_main.py"]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await pilot.pause(0.01)


class KnownFiles(FileFinder):
    """A list that is never made again."""

    stale = False

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(Path.cwd())
        self._take(paths)


def host(paths: list[str] | None = None) -> Host:
    return Host(PromptInput(commands=COMMANDS, files=KnownFiles(paths or PATHS)))


# --- files --------------------------------------------------------------------------------------------------


async def test_tab_and_enter_put_the_path_in_the_place_of_what_was_typed():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "see @main")
        assert app.offered == ["src/main.py", "tests/test_main.py"]
        await pilot.press("tab")
        assert app.prompt.text == "see @src/main.py "
        await type_text(pilot, "and @testm")
        await pilot.press("enter", "enter")
        assert app.heard == [("submitted", "see @src/main.py and @tests/test_main.py")]


async def test_arrows_choose_and_escape_closes_without_reaching_the_app():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "@main")
        await pilot.press("down", "tab")
        assert app.prompt.text == "@tests/test_main.py "
        await type_text(pilot, "@re")
        await pilot.press("escape")
        assert app.offered == []
        assert app.heard == []
        await pilot.press("a", "enter")
        assert app.heard == [("submitted", "@tests/test_main.py @rea")]


async def test_a_path_with_spaces_is_quoted():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "@notes")
        await pilot.press("tab")
        assert app.prompt.text == '@"src/my notes.txt" '


async def test_the_first_letters_of_words_find_a_file_and_so_do_scattered_ones():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "@spv")
        assert app.offered == ["src/prompt_view.py"]
        await pilot.press("ctrl+u")
        await type_text(pilot, "@rdme")
        assert app.offered == ["README.md"]


async def test_a_folder_can_be_chosen():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "@tests")
        await pilot.press("tab")
        assert app.prompt.text == "@tests/ "


async def test_an_address_offers_nothing():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "me@main")
        assert app.offered == []
        await type_text(pilot, " (@main")
        assert app.offered


async def test_the_list_goes_when_the_cursor_leaves_the_word():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "a @main")
        assert app.offered
        await pilot.press("home")
        assert app.offered == []


async def test_a_click_on_a_row_takes_it():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "@main")
        await pilot.click(CompletionList, offset=(3, 1))
        await pilot.pause()
        assert app.prompt.text == "@tests/test_main.py "


async def test_the_list_stands_above_the_prompt_and_moves_nothing():
    app = host()
    async with app.run_test(size=(80, 24)) as pilot:
        before = app.prompt.region
        await type_text(pilot, "@main")
        await pilot.pause()
        assert app.prompt.region == before
        assert app.query_one(CompletionList).region.bottom == before.y
        assert app.query_one(CompletionList).region.height == 2


async def test_completion_shows_at_most_eight_rows():
    app = host([f"main{number}.py" for number in range(30)])
    async with app.run_test(size=(20, 6)) as pilot:
        await type_text(pilot, "@main")
        assert len(app.offered) == 8
        shown = app.query_one(CompletionList)
        await pilot.press(*["down"] * 7)
        assert shown.region.height == 5
        assert "main7.py" in str(shown.render())
        await pilot.press("tab")
        assert app.prompt.text == "@main7.py "


async def test_completion_counts_hidden_choices():
    commands = [AppCommand(f"Title {number}", "", "", f"command{number}") for number in range(21)]
    app = Host(PromptInput(commands=commands))
    async with app.run_test(size=(80, 24)) as pilot:
        await type_text(pilot, "/")
        await pilot.pause()
        shown = app.query_one(CompletionList)
        assert "1–7 of 21" in str(shown.render())
        assert shown.region.height == 8
        await pilot.press("up")
        assert "15–21 of 21" in str(shown.render())
        assert "command20" in str(shown.render())
        await pilot.click(CompletionList, offset=(3, 0))
        await pilot.pause()
        assert app.heard == [("command", "command14", "")]
        await type_text(pilot, "/command1")
        assert "of 11" in str(shown.render())
        await type_text(pilot, "9")
        assert "of" not in str(shown.render())


async def test_completion_shows_a_choice_when_there_is_one_row():
    app = host([f"main{number}.py" for number in range(30)])
    async with app.run_test(size=(20, 2)) as pilot:
        await type_text(pilot, "@main")
        await pilot.press("down", "tab")
        assert app.prompt.text == "@main1.py "


async def listed(pilot: Pilot[None]) -> None:
    """Until the files are there."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def test_the_files_of_the_folder_are_listed_and_ignored_ones_are_not(workspace: Path):
    for name in ("kept.py", "build/junk.py", "sub/kept_too.py", ".hidden/kept3.py"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("x")
    (workspace / ".gitignore").write_text("build/\n")
    app = Host(PromptInput(files=FileFinder(workspace)))
    async with app.run_test() as pilot:
        await type_text(pilot, "@k")
        await listed(pilot)
        assert sorted(app.offered) == [".hidden/kept3.py", "kept.py", "sub/kept_too.py"]
        await pilot.press("escape", "ctrl+u")
        await type_text(pilot, "@junk")
        assert app.offered == []


async def test_a_folder_that_is_gone_is_said(tmp_path: Path):
    app = Host(PromptInput(files=FileFinder(tmp_path / "gone")))
    async with app.run_test() as pilot:
        await type_text(pilot, "@k")
        await listed(pilot)
        assert "cannot list the files" in str(app.query_one(CompletionList).render())
        await pilot.press("enter")
        assert app.heard == [("submitted", "@k")]


async def test_names_that_cannot_be_typed_are_left_out(workspace: Path):
    for name in ("plain.py", "line\nbreak.py", "esc\x1b[31m.py", "turn\u202e.py"):
        (workspace / name).write_text("x")
    app = Host(PromptInput(files=FileFinder(workspace)))
    async with app.run_test() as pilot:
        await type_text(pilot, "@py")
        await listed(pilot)
        assert app.offered == ["plain.py"]


def many() -> list[str]:
    return [f"package{number % 300}/module_{number}/file{number}.py" for number in range(100_000)]


@pytest.mark.nightly
async def test_a_hundred_thousand_files_are_searched_between_keys():
    app = host([*many(), "deep/down/needle_in_hay.txt"])
    async with app.run_test() as pilot:
        await type_text(pilot, "@ndlhay")
        await listed(pilot)
        assert app.offered == ["deep/down/needle_in_hay.txt"]
        await pilot.press("tab")
        assert app.prompt.text == "@deep/down/needle_in_hay.txt "


class Slow(KnownFiles):
    """Finds something in each search when it is told to."""

    def __init__(self) -> None:
        super().__init__([f"{number}.py" for number in range(MAX_PATHS_AT_ONCE + 1)])
        self.asked: list[str] = []
        self.may_go_on = threading.Event()

    def search(self, typed: str) -> list[str]:
        self.asked.append(typed)
        self.may_go_on.wait(60)
        return [f"{typed}/far.py", f"{typed}/fair.py"]


async def test_a_long_search_holds_up_no_key_and_another_one_follows():
    finder = Slow()
    app = Host(PromptInput(files=finder))
    async with app.run_test() as pilot:
        await type_text(pilot, "@fair")
        assert (app.prompt.text, app.offered) == ("@fair", [])
        finder.may_go_on.set()
        await listed(pilot)
        assert (finder.asked[0], finder.asked[-1], len(finder.asked)) == ("", "fair", 2)
        assert app.offered == ["fair/far.py", "fair/fair.py"]


async def test_the_list_does_not_change_under_the_hands_of_who_moves_in_it():
    finder = Slow()
    finder.may_go_on.set()
    app = Host(PromptInput(files=finder))
    async with app.run_test() as pilot:
        await type_text(pilot, "@fa")
        await listed(pilot)
        finder.may_go_on.clear()
        await type_text(pilot, "i")
        assert app.offered == ["fa/fair.py"]
        await pilot.press("down")
        finder.may_go_on.set()
        await listed(pilot)
        await pilot.press("tab")
        assert app.prompt.text == "@fa/fair.py "


def test_completion_narrows_without_losing_a_file():
    paths = [*many(), "src/zebra_quilt.py"]
    finder = KnownFiles(paths)
    for typed in ("z", "zq", "zqu", "zqut"):
        assert finder.search(typed)[0] == "src/zebra_quilt.py", typed
    assert finder.search("file77777.py") == ["package77/module_77777/file77777.py"]


def test_a_name_beats_a_folder_and_a_start_beats_a_middle():
    finder = KnownFiles(
        ["app/x/views.py", "my_app.py", "app.py", "application.py", "snapper.py", "zap/ppp.py"]
    )
    found = finder.search("app")
    assert found[:5] == ["app/", "app.py", "application.py", "my_app.py", "snapper.py"]
    assert found.index("app/x/views.py") < found.index("zap/ppp.py")


@pytest.mark.parametrize("closed_first", [False, True])
def test_a_listing_without_end_ends_when_the_finder_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_first: bool
):
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 1000\n")
    slow.chmod(0o700)
    monkeypatch.setattr("crushpy.tools.search.ripgrep.find_ripgrep", lambda: str(slow))
    finder = FileFinder(tmp_path)
    if closed_first:
        finder.close()
    listing = threading.Thread(target=finder.load, daemon=True)
    listing.start()
    if not closed_first:
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        finder.close()
    listing.join(timeout=30)
    assert not listing.is_alive()


# --- commands -----------------------------------------------------------------------------------------------


async def test_a_slash_lists_the_commands_and_letters_filter_them():
    app = host()
    async with app.run_test() as pilot:
        await pilot.press("/")
        assert len(app.offered) == len(COMMANDS)
        assert app.prompt.mode == "command"
        await type_text(pilot, "com")
        assert app.offered == ["/compaction [auto|llm]", "/compact [focus words]", "/help"]


async def test_enter_on_a_whole_name_does_the_command():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/compact\n")
        assert app.heard == [("command", "compact", "")]
        assert app.prompt.text == ""


async def test_words_behind_a_command_are_its_arguments():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/compact the tests  \n")
        assert app.heard == [("command", "compact", "the tests")]


async def test_enter_on_part_of_a_name_completes_it_and_waits_for_the_argument():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/hand\n")
        assert app.heard == []
        assert app.prompt.text == "/handoff "
        await type_text(pilot, "my words\n")
        assert app.heard == [("command", "handoff", "my words")]


async def test_a_command_without_arguments_is_done_at_once():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/he\n")
        assert app.heard == [("command", "help", "")]


async def test_a_command_nobody_knows_is_kept_and_said():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/nonsense\n")
        assert app.heard == []
        assert app.prompt.text == "/nonsense"
        assert "There is no command /nonsense." in app.above
        await pilot.press("x")
        await pilot.pause()
        assert app.above == "", "the next key removes it"
        assert app.prompt.text == "/nonsensex"


async def test_tab_with_nothing_to_complete_stays_in_the_prompt():
    app = host()
    async with app.run_test() as pilot:
        for text in ("see @nosuchfile", "/nonsense"):
            app.prompt.draft = ""
            await type_text(pilot, text)
            await pilot.press("tab")
            assert app.prompt.has_focus
            assert app.prompt.text == text


async def test_a_file_that_was_created_a_moment_ago_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_finder, "LIST_TTL_S", 0.0)
    (tmp_path / "old.py").touch()
    app = Host(PromptInput(files=FileFinder(tmp_path)))
    async with app.run_test() as pilot:
        await type_text(pilot, "@")
        await until(pilot, lambda: app.offered == ["old.py"])
        (tmp_path / "older.py").touch()
        await type_text(pilot, "old")
        await until(pilot, lambda: app.offered == ["old.py", "older.py"])


async def test_a_path_is_a_prompt_and_so_is_a_slash_behind_a_space():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "/etc/hosts is odd\n")
        await type_text(pilot, " /help\n")
        assert app.heard == [("submitted", "/etc/hosts is odd"), ("submitted", " /help")]


async def test_resources_of_servers_are_offered_by_their_names():
    app = host()
    async with app.run_test() as pilot:
        app.prompt.add_commands([], [("src:memo://one", "First"), ("src:memo://two", "Second")])
        await type_text(pilot, "see @src")
        assert "src/main.py" in app.offered
        assert app.offered[-2:] == ["@src:memo://one", "@src:memo://two"]
        await type_text(pilot, ":memo://t")
        assert app.offered == ["@src:memo://two"]
        await pilot.press("tab")
        assert app.prompt.text == "see @src:memo://two "
