"""What a new summary leaves out of the notes before it is found by code, and carried for a while."""

from hypothesis import given
from hypothesis import strategies as st

from crushpy.context.earlier_notes import bullets, contains_note, marks, unmentioned_notes
from crushpy.core.messages import EarlierNote

NOTES = """## Goal and constraints
- The server listens on port 7071
- Never touch `src/legacy/parser.c`
## Decisions and why
1. We chose SQLite over files,
   because two processes write.
* The user prefers short commit messages
## Done
Plain words below a heading."""


def count(text: str) -> int:
    return len(text.split())


def texts(notes: tuple[EarlierNote, ...]) -> list[str]:
    return [note.text for note in notes]


def test_every_point_of_a_summary_is_one_note_whatever_its_bullet() -> None:
    assert bullets(NOTES) == [
        "The server listens on port 7071",
        "Never touch `src/legacy/parser.c`",
        "We chose SQLite over files, because two processes write.",
        "The user prefers short commit messages",
        "Plain words below a heading.",
    ]


def test_paths_numbers_and_identifiers_are_what_must_be_exact() -> None:
    found = marks("Run make_it on port 7071 in src/a.py with getName, HTTP_PORT and ordinary words.")
    assert found == {"make_it", "7071", "src/a.py", "getname", "http_port"}


def test_earlier_notes_leave_out_what_the_summary_mentions() -> None:
    summary = (
        "- port 7071 is taken\n- SQLite it is\n- the user likes short messages for every commit he prefers"
        "\n- plain words were below the heading"
    )
    assert texts(unmentioned_notes(NOTES, (), summary, limit=500, count=count)) == [
        "Never touch `src/legacy/parser.c`"
    ]


def test_notes_get_older_with_each_generation_and_are_dropped_after_three() -> None:
    notes = unmentioned_notes("- the port is 7071", (), "- nothing of it", limit=500, count=count)
    ages = [notes[0].age]
    while notes:
        notes = unmentioned_notes("", notes, "- nothing of it", limit=500, count=count)
        ages += [note.age for note in notes]
    assert ages == [1, 2, 3]


def test_the_newest_have_the_first_right_to_space() -> None:
    old = (EarlierNote("the limit is 20", 1),)
    assert texts(unmentioned_notes("- the port is 7071", old, "", limit=6, count=count)) == [
        "the port is 7071"
    ]


def test_a_note_said_twice_is_carried_once() -> None:
    old = (EarlierNote("the port is 7071", 1),)
    found = unmentioned_notes("- the port is 7071", old, "", limit=500, count=count)
    assert found == (EarlierNote("the port is 7071", 1),)


def test_a_note_is_kept_where_all_that_must_be_exact_in_it_is() -> None:
    assert contains_note("port 7071 in src/a.py", "src/a.py listens on 7071")
    assert not contains_note("port 7071 in src/a.py", "src/a.py listens")
    assert contains_note("the user prefers short messages", "short messages: the user prefers them")


@given(st.text(), st.text(), st.integers(0, 200))
def test_earlier_notes_stay_within_the_limit_for_any_text(previous: str, summary: str, limit: int) -> None:
    found = unmentioned_notes(previous, (), summary, limit=limit, count=count)
    assert sum(count(note.text) + 2 for note in found) <= limit
    assert all(note.text in bullets(previous) for note in found)
