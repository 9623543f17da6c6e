"""What really happened, read off messages."""

import pytest
from support.histories import assistant, call, changed, planned, ran, result, seed, user, viewed

from crushpy.context import facts
from crushpy.core.messages import Image, Message, Note, Terminal, Text, Todo


def test_requests_are_the_users_own_words_and_pictures_only() -> None:
    messages = [
        seed("a summary"),
        user("  first \n"),
        Message("n", "user", (Note("crushpy says"),)),
        assistant("I shall"),
        Message("i", "user", (Image("image/png", "aGk="),)),
        Message("b", "user", (Text("see this"), Image("image/png", "aGk="))),
        user("   "),
    ]
    found = [facts.request_text(message) for message in messages if message.role == "user"]
    assert list(filter(None, found)) == [
        "first",
        "[image image/png, 2 bytes]",
        "see this\n[image image/png, 2 bytes]",
    ]


def test_commands_are_in_order_with_what_came_of_them() -> None:
    found = facts.commands([*ran("a", "out", 0), *ran("b", "bad", 2)])
    told = [(c.text, c.failed, c.exit_code, c.output) for c in found]
    assert told == [("a", False, 0, "out"), ("b", True, 2, "bad")]


def test_a_call_without_a_result_is_no_fact_yet() -> None:
    assert facts.commands([assistant("", call("bash", command="sleep 9"))]) == []


def test_results_of_parallel_calls_belong_to_their_own_call() -> None:
    one, two = call("bash", command="one"), call("bash", command="two")
    messages = [
        assistant("", one, two),
        result(two, "2", is_error=True, display=Terminal("two", "2", 1)),
        result(one, "1", display=Terminal("one", "1", 0)),
    ]
    assert {c.text: c.failed for c in facts.commands(messages)} == {"one": False, "two": True}


def test_a_job_that_runs_or_was_killed_neither_failed_nor_worked() -> None:
    look, again = call("job_output", job_id="j"), call("job_output", job_id="j")
    messages = [
        assistant("", look),
        result(look, "", display=Terminal("serve", "", None, note="j is running")),
        assistant("", again),
        result(again, "", display=Terminal("serve", "", -15, note="j was killed")),
    ]
    assert facts.commands(messages) == []


def test_files_are_created_written_edited_or_read() -> None:
    work = [
        *changed("a", created=True, tool="write"),
        *changed("b", tool="write"),
        *changed("c", tool="multiedit"),
        *viewed("d"),
    ]
    assert [(t.path, t.action) for t in facts.touched(work)] == [
        ("a", "created"),
        ("b", "written"),
        ("c", "edited"),
        ("d", "read"),
    ]


def test_todos_are_those_last_set() -> None:
    work = [*planned(Todo("a")), *planned(Todo("b"), Todo("c", "completed"))]
    assert [todo.text for todo in facts.open_todos(facts.todos(work))] == ["b"]


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("a.py", "/work/a.py"),
        ("./src//x/../a.py", "/work/src/a.py"),
        ("/abs/a.py", "/abs/a.py"),
        ("//abs/./a.py", "/abs/a.py"),
        ("../other/a.py", "/other/a.py"),
        ("~/a.py", "~/a.py"),
        ("C:\\x\\a.py", "C:\\x\\a.py"),
    ],
)
def test_paths_are_given_in_full_without_detours(path: str, full: str) -> None:
    assert facts.absolute(path, "/work") == full


@pytest.mark.parametrize(
    ("command", "is_test"),
    [
        ("pytest -q", True),
        ("cd x && .venv/bin/pytest tests", True),
        ("python3.12 -m unittest discover", True),
        ("CI=1 timeout 60 npm run test", True),
        ("make -j4 check", True),
        ("cargo nextest run", True),
        ("./run-tests.sh x", True),
        ("bin/test", True),
        ("pip install pytest", False),
        ("grep -r pytest .", False),
        ("test -f x && echo yes", False),
        ("git commit -m 'make test pass'", False),
        ("cat tests/a.py", False),
        (";" * 100_000, False),
        ("a/" * 100_000, False),
    ],
)
def test_a_test_run_is_told_from_other_commands(command: str, is_test: bool) -> None:
    (found,) = facts.commands(ran(command))
    assert found.is_test is is_test
