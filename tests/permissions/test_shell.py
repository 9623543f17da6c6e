"""What is read out of a shell command."""

import pytest

from crushpy.permissions.shell.ast import ShellReading, with_inner
from crushpy.permissions.shell.line_reader import parse_shell


def commands(reading: ShellReading) -> list[list[str]]:
    """Every simple command, also those inside others, as words; what is not certain in angle brackets."""
    return [
        [word.text if word.kind == "literal" else f"<{word.text}>" for word in each.words]
        for command in reading.commands
        for each in with_inner(command)
    ]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("""git 'log' "-5" a\\ b c""", [["git", "log", "-5", "a b", "c"]]),
        ("echo *.py ~/z ~", [["echo", "<*.py>", "<~/z>", "<~>"]]),
        (
            "echo {} {a,b} '{a,b}' '*' HEAD@{1} HEAD~2",
            [["echo", "{}", "<{a,b}>", "{a,b}", "*", "HEAD@{1}", "HEAD~2"]],
        ),
        ("""grep "a$" b$ '$c' "\\$d" \\$e""", [["grep", "a$", "b$", "$c", "$d", "$e"]]),
        ("a | b && c || d; e & f |& g", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a\nb &&\n\nc", [["a"], ["b"], ["c"]]),
        ("a > f b", [["a", "b"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a # b", [["a"]]),
        ("# a \\\nb # $(c)\nd#e", [["b"], ["d#e"]]),
        ("cat <<'E' x\n$(a)\nE\nb", [["cat", "x"], ["b"]]),
        ("cat <<E | b\nhi\nE", [["cat"], ["b"]]),
        ("a <<< 'b c' d", [["a", "d"]]),
        ("""a -m "$(cat <<'E'\nit's (b)\n\nc\nE\n)" d""", [["cat"], ["a", "-m", "it's (b)\n\nc", "d"]]),
        ("CI=1 LC_ALL=C a b", [["a", "b"]]),
        ("env CI=1 b c", [["env", "CI=1", "b", "c"], ["b", "c"]]),
        ("timeout -k 1 5 a", [["timeout", "-k", "1", "5", "a"], ["a"]]),
        ("command - a", [["command", "-", "a"], ["-", "a"]]),
        ("bash -ec 'a; b' x", [["bash", "-ec", "a; b", "x"], ["a"], ["b"]]),
        ("sudo -u x a", [["sudo", "-u", "x", "a"], ["a"]]),
        ("xargs -n 1 a b", [["xargs", "-n", "1", "a", "b"], ["a", "b", "<...>"]]),
        ("xargs -I X a bXc", [["xargs", "-I", "X", "a", "bXc"], ["a", "<bXc>"]]),
        ("env -S 'a b'", [["env", "-S", "a b"]]),
        ("nice nohup a", [["nice", "nohup", "a"], ["nohup", "a"], ["a"]]),
        ("set -euo pipefail; a", [["set", "-euo", "pipefail"], ["a"]]),
    ],
)
def test_every_simple_command_of_a_literal_line_is_found(command: str, found: list[list[str]]) -> None:
    reading = parse_shell(command)
    assert reading.not_literal == ""
    assert commands(reading) == found


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("a > f", [("f", True)]),
        ("a >> 'f g'", [("f g", True)]),
        ("a >| f", [("f", True)]),
        ("a &> f", [("f", True)]),
        ("a &>> f", [("f", True)]),
        ("a >& f", [("f", True)]),
        ("a 2> f < g", [("f", True), ("g", False)]),
        ("a 2>&1 >&2 <&- 2>&-", []),
        ("> f", [("f", True)]),
        ("a <<E > f\nx\nE", [("f", True)]),
        ("a <<< x", []),
        ("bash -c 'a > f'", [("f", True)]),
        ("a 3<> f", [("f", True)]),
    ],
)
def test_every_file_the_shell_opens_is_found(command: str, files: list[tuple[str, bool]]) -> None:
    reading = parse_shell(command)
    assert reading.not_literal == ""
    assert [(each.target.text, each.writes) for each in reading.redirects] == files


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("a $b", "$b is an expansion"),
        ('a "b$c"', "$c is an expansion"),
        ("a ${-:u}", "${-:u} is an expansion"),
        ("a $(b)", "$(b) is an expansion"),
        ("a `b`", "`b` is an expansion"),
        ("a $((1))", "$((1)) is an expansion"),
        ("a <(b)", "(b) is an expansion"),
        ("a $'b'", "is an expansion"),
        ("$a b", "$a is an expansion"),
        ("{a,b} c", "`{a,b}` is not literal"),
        ("/bin/? c", "`/bin/?` is not literal"),
        ("(a)", "parentheses"),
        ("a() { b; }", "parentheses"),
        ("{ a; }", "`{` begins a compound command"),
        ("! a", "`!` begins a compound command"),
        ("if a; then b; fi", "`if` begins a compound command"),
        ("for a in b; do c; done", "`for` belongs to a compound command"),
        ("[[ a ]]", "`[[` belongs to a compound command"),
        ("X=1 a", "setting X"),
        ("PATH=. a", "setting PATH"),
        ("CI='a b' c", "setting CI"),
        ("env X=1 a", "setting X"),
        ("a[$(b)]=1", "is an expansion"),
        ("eval a", "`eval` changes what the shell runs"),
        (". a", "`.` changes what the shell runs"),
        ("read PATH", "`read` changes"),
        ("export A", "`export` changes"),
        ("set -k", "changes how the shell reads"),
        ("[ -v 'a[$(b)]' ]", "array's index"),
        ("[ -v * ]", "array's index"),
        ("bash -c *", "cannot be read"),
        ("bash -c - a", "cannot be read"),
        ("time -", "what time runs cannot be read"),
        ("time S+= a", "setting S"),
        ("cat <<E\n$a\nE", "here-document may contain expansions"),
        ("cat <<-E\na\nE", "unusual delimiter"),
        ("cat <<$E\na\n$E", "unusual delimiter"),
        ("cat <<E 'a\nE\nb'\nE", "beside a here-document"),
        ("a b\\\nc", "broken in the middle of a word"),
        ("a ~b/c", "another home folder"),
        ("a b=~/c", "`~` may be expanded"),
        ("a {b}>c", "a redirection is about"),
        ("a 1234>c", "a redirection is about"),
    ],
)
def test_a_line_that_is_not_literal_says_why(command: str, why: str) -> None:
    reading = parse_shell(command)
    assert why in reading.not_literal
    assert not reading.broken


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("a 'b", "a quote is not closed"),
        ('a "b', "a quote is not closed"),
        ("a $(b", "$(b is an expansion"),
        ("cat <<E\na", "here-document has no end"),
        ("cat <<E", "here-document has no end"),
        ("a &&", "ends in an operator"),
        ("a;;b", "nothing stands before `;`"),
        ("| a", "nothing stands before `|`"),
        ("a >", "no target"),
        ("a\\", "ends in a backslash"),
        ("a\rb", "U+000D"),
        ("a\u2003b", "U+2003"),
        ("a\x00b", "U+0000"),
        ("echo " + "x" * 100_000, "too long"),
        ("bash -c " * 20 + "a", ""),
    ],
)
def test_a_line_that_cannot_be_parsed_is_broken(command: str, why: str) -> None:
    reading = parse_shell(command)
    assert why in reading.not_literal
    assert reading.broken or not why


@pytest.mark.parametrize(
    "command",
    [
        *("rm x; eval y", "f() { rm x; }; f", "$y; rm x", "rm x; echo $((a))", "rm x 'y", "(rm x)", "! rm x"),
        *("if a; then rm x; fi", "for a in b; do rm x; done", "echo $(rm x)", "echo `rm x`", "cat <(rm x)"),
        *('echo "$(rm x)"', "X=1 rm x", "cat <<E\n$(rm x)\nE", "{ rm x; }", "while a; do rm x; done"),
    ],
)
def test_the_commands_of_other_lines_are_found_as_far_as_possible(command: str) -> None:
    reading = parse_shell(command)
    assert reading.not_literal
    assert ["rm", "x"] in [words[:2] for words in commands(reading)]
