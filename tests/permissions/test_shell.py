"""What is read out of a shell command."""

import pytest

from crushpy.permissions.shell.ast import ShellReading, with_inner
from crushpy.permissions.shell.parser import parse_shell


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
        ('echo "a $x" $y *.py ~/z', [["echo", "<a $x>", "<$y>", "<*.py>", "<~/z>"]]),
        ("echo {} {a,b} '{a,b}' '*'", [["echo", "{}", "<{a,b}>", "{a,b}", "*"]]),
        ("echo $'a\\tb' $'\\x41'", [["echo", "a\tb", "<$'\\x41'>"]]),
        ("a | b && c || d; e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("(a; { b; })", [["a"], ["b"]]),
        ("a $(b `c`)", [["c"], ["b", "<`c`>"], ["a", "<$(b `c`)>"]]),
        ("a <(b) >(c)", [["b"], ["c"], ["a", "<<(b)>", "<>(c)>"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("while a; do b; done", [["a"], ["b"]]),
        ("for x in $(a); do b $x; done", [["a"], ["b", "<$x>"]]),
        ("case $(a) in x) b;; *) c;; esac", [["a"], ["b"], ["c"]]),
        ("! a", [["a"]]),
        ("a > f b", [["a", "b"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a # b", [["a"]]),
        ("cat <<E x\n$(a)\nE", [["a"], ["cat", "x"]]),
        ("cat <<'E'\n$(a)\nE", [["cat"]]),
        ("cat <<-E\n\thi\n\tE\nb", [["cat"], ["b"]]),
        ("env A=1 b c", [["env", "A=1", "b", "c"], ["b", "c"]]),
        ("timeout -k 1 5 a", [["timeout", "-k", "1", "5", "a"], ["a"]]),
        ("bash -ec 'a; b' x", [["bash", "-ec", "a; b", "x"], ["a"], ["b"]]),
        ("sudo -u x a", [["sudo", "-u", "x", "a"], ["a"]]),
        ("xargs -n 1 a b", [["xargs", "-n", "1", "a", "b"], ["a", "b", "<...>"]]),
        ("xargs -I X a bXc", [["xargs", "-I", "X", "a", "bXc"], ["a", "<bXc>"]]),
        ("env -S 'a b'", [["env", "-S", "a b"]]),
        ("nice nohup a", [["nice", "nohup", "a"], ["nohup", "a"], ["a"]]),
    ],
)
def test_every_simple_command_is_found(command: str, found: list[list[str]]) -> None:
    reading = parse_shell(command)
    assert reading.unreadable == ""
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
        ("(a; b) > f", [("f", True)]),
        ("while a; do b; done < f", [("f", False)]),
        ("a <<E > f\nx\nE", [("f", True)]),
        ("a <<< x", []),
        ("bash -c 'a > f'", [("f", True)]),
        ("a $(b > f)", [("f", True)]),
    ],
)
def test_every_file_the_shell_opens_is_found(command: str, files: list[tuple[str, bool]]) -> None:
    reading = parse_shell(command)
    assert reading.unreadable == ""
    assert [(each.target.text, each.writes) for each in reading.redirects] == files


def test_variables_are_found_before_a_command_and_alone() -> None:
    reading = parse_shell("A=1 B=$x c; D=2; export E=3 F; for G in 1; do h; done; env I=4 j")
    assert [(each.name, each.value) for each in reading.commands[0].variables] == [("A", "1"), ("B", None)]
    assert [(each.name, each.value) for each in reading.variables] == [
        ("D", "2"),
        ("E", "3"),
        ("F", None),
        ("G", None),
    ]
    (inner,) = reading.commands[2].inner
    assert [(each.name, each.value) for each in inner.variables] == [("I", "4")]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("a 'b", "cannot be read as a shell command"),
        ("$a b", "the program's name `$a` is not known"),
        ("eval a", "`eval` runs what cannot be read"),
        (". a", "`.` runs what cannot be read"),
        ("a() { b; }", "defines a shell function"),
        ("echo $((a))", "calculates with variables"),
        ("echo ${-:a}", "calculates with variables"),
        ("echo ${@:a}", "calculates with variables"),
        ("echo ${a[0]:b}", "calculates with variables"),
        ("echo ${a@P}", "cannot be judged"),
        ("echo ${a[$(b)]}", "cannot be judged"),
        ("a[$(b)]=1", "array's element"),
        ("[[ $a -gt 1 ]]", "calculates with variables"),
        ("[ -v a ]", "variable's name"),
        ("declare -i a=b", "cannot be judged"),
        ("set -k", "changes how the shell reads"),
        ("a\rb", "unusual character U+000D"),
        ("a\u2003b", "unusual character U+2003"),
        ("a\x00b", "unusual character U+0000"),
        ("a b\\\nc", "broken in the middle of a word"),
        ("cat <<E\n`a`\nE", "hides a substitution"),
        ("cat <<$E\na\n$E", "here-document"),
        ("`a \\`b\\``", "backticks with escapes"),
        ("a {b}>c", "which file a redirection"),
        ("a -x<<E\nb\nE", "cannot be read"),
        ("a ==[ c", "part of a word"),
        ("a b<(c)", "part of a word"),
        ("cat <<A\n A\necho '\nA\nrm x\necho '", "ends elsewhere than it seems"),
        ("( " * 80 + "a" + " )" * 80, "nested too deeply"),
        ("echo " + "x" * 100_000, "too long"),
    ],
)
def test_what_cannot_be_read_says_why(command: str, says: str) -> None:
    assert says in parse_shell(command).unreadable


def test_what_can_be_read_of_an_unreadable_command_is_still_found() -> None:
    for command in ("rm x; eval y", "f() { rm x; }; f", "$y; rm x", "rm x; echo $((a))", "rm x 'y"):
        reading = parse_shell(command)
        assert reading.unreadable
        assert "rm" in [each.program for each in reading.commands]


def test_a_command_on_the_next_line_is_not_an_argument() -> None:
    """The parser reads an escaped first letter as the end of the line before."""
    for command in (
        "git log\n\\rm x",
        "git log \n\\rm x",
        "git log ==\nrm x",
        "git log\n\\\n rm x",
        "git log $\nrm x",
    ):
        reading = parse_shell(command)
        assert reading.unreadable or ["rm", "x"] in commands(reading)
