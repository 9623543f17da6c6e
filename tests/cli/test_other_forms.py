"""Other ways to write the same: -p, --resume, and a prompt with a space."""

import pytest

from crushpy.cli.arguments import normalize_arguments, parse_chat_flags


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        (["-p", "do it"], ["run", "do it"]),
        (["-p", "do it", "--format", "json"], ["run", "do it", "--format", "json"]),
        (["-m", "openai/x", "-p", "do it"], ["run", "-m", "openai/x", "do it"]),
        (["--resume", "abc123"], ["--session", "abc123"]),
        (["--resume"], ["--resume"]),
        (["--resume", "--yolo"], ["--resume", "--yolo"]),
        (["-p", "go on", "--resume", "abc123"], ["run", "go on", "--session", "abc123"]),
        (["run", "--resume", "abc123", "go on"], ["run", "--session", "abc123", "go on"]),
        (["sessions", "list"], ["sessions", "list"]),
    ],
    ids=" ".join,
)
def test_they_are_read_as_the_usual_form(given: list[str], usual: list[str]) -> None:
    assert normalize_arguments(given) == usual


def test_argument_with_a_space_is_a_prompt() -> None:
    options = parse_chat_flags(["two words", "--yolo", "--image", "a.png"])
    assert options is not None
    assert (options.prompt, options.yolo, options.image) == ("two words", True, ("a.png",))
    assert parse_chat_flags(["word"]) is None
    assert parse_chat_flags(["two words", "three more words"]) is None
