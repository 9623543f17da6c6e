"""Reads a shell command without running it, and tells whether it is a literal line.

A literal line consists of words, quotes, globs, pipes, lists and redirections to literal paths. Bash does
with it what this module reads, and only about such lines do rules decide. Any expansion, assignment or
compound command makes a line not literal; what is read of it serves questions and deny rules, not permission.
"""

import re
import sys
from functools import lru_cache
from typing import Literal

import msgspec

from crushpy.permissions.shell.ast import Redirect, ShellReading, SimpleCommand, Word, with_inner, word_set
from crushpy.permissions.shell.wrappers import is_harmless_assignment, unwrap
from crushpy.util.lazy_pattern import lazy_pattern

_MAX_CHARACTERS = 100_000
_MAX_DEPTH = 8

_ODD = lazy_pattern(r"[^\S \t\n]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and blanks that are none to bash."""
_SEPARATOR = lazy_pattern(r"&&|\|\||\|&|[;|]|&(?!>)")
_REDIRECT = lazy_pattern(r"([0-9]{1,3})?(<<<|<<-?|<>|<&|<|>>|>&|>\||>)|()(&>>?)")
_WORD_END = " \t\n;&|<>()"
_PLAIN = lazy_pattern(r"[^\s;&|<>()'\"\\$`*?\[{}~]+", re.ASCII)
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_]\w*(?:\[.*\])?\+?=", re.ASCII | re.DOTALL)
_HEREDOC = lazy_pattern(r"[ \t]*(?:'(\w+)'|\"(\w+)\"|(\w+))(?=[\s;&|<>]|\Z)", re.ASCII)
_PARAMETER = lazy_pattern(r"\$(?:\w+|[@*#?$!-])?", re.ASCII)
_COMMIT_MESSAGE = lazy_pattern(
    r"\"\$\(cat <<'(\w+)'\n((?:(?!\1\n)[^\n$`\\]*\n)*)\1\n[ \t]*\)\"(?=[\s;&|]|\Z)", re.ASCII
)
"""`"$(cat <<'EOF' ... EOF)"`, the usual way to pass text of several lines. Its value is known exactly."""

_OPENING = word_set("if then elif else while until do ! {")
_RESERVED = word_set("fi for done case esac in select function } [[ ]] coproc")
_BUILTINS = word_set(
    ". alias bg bind compgen complete compopt declare disown enable eval exec export fc fg getopts hash"
    " history jobs let local mapfile read readarray readonly shopt source suspend trap typeset unalias unset"
)
"""Builtins that run text, or change what later words mean."""
_SAFE_SET = lazy_pattern(r"[-+][eux]*o?|pipefail|errexit|nounset|xtrace")
_EVALUATES = word_set("test [ wait printf")
"""Builtins that evaluate the index in a variable's name they are given."""
_SETS_VARIABLE = lazy_pattern(r"%[^%A-Za-z]*[hjlLtz]*n")
"""In a format of printf: sets the variable that the next word names, such as PATH, to a number."""


@lru_cache(maxsize=256)
def parse_shell(command: str) -> ShellReading:
    """What bash would do with `command`."""
    return _read(command, 0)


def _read(command: str, depth: int) -> ShellReading:
    if len(command) > _MAX_CHARACTERS:
        return ShellReading(not_literal="it is too long", broken=True)
    if depth > _MAX_DEPTH:
        return ShellReading(not_literal="it is nested too deeply", broken=True)
    reader = _Reader(command, depth)
    reader.run()
    return ShellReading(tuple(reader.commands), tuple(reader.redirects), reader.not_literal, reader.broken)


class _Reader:
    """One pass over one command line. Continues after what is not literal: a deny rule may match the rest."""

    def __init__(self, text: str, depth: int) -> None:
        self.commands: list[SimpleCommand] = []
        self.redirects: list[Redirect] = []
        self.not_literal = ""
        self.broken = False
        self._text = text
        self._depth = depth
        self._at = 0
        self._words: list[tuple[Word, str]] = []
        """The words of the present command, each with its unquoted characters."""
        self._has_redirect = False
        self._stdin: Literal["", "pipe", "redirection"] = ""
        self._needs_command = False
        """True after `|`, `&&` and `||`."""
        self._heredocs: list[tuple[str, bool]] = []
        """Here-documents whose text begins on the next line: the delimiter, and whether it was quoted."""

    def _fail(self, reason: str) -> None:
        self.not_literal = self.not_literal or reason

    def _break(self, reason: str) -> None:
        self._fail(reason)
        self.broken = True

    def run(self) -> None:
        if odd := _ODD.search(self._text):
            self._break(f"it contains the character U+{ord(odd[0]):04X}")
        while self._at < len(self._text):
            self._next_token()
        if self._heredocs:
            self._break("a here-document has no end")
        self._end_command("")
        if self._needs_command:
            self._break("it ends in an operator")

    def _next_token(self) -> None:
        text, at = self._text, self._at
        letter = text[at]
        if letter in " \t":
            self._at += 1
        elif text.startswith("\\\n", at) and (at == 0 or text[at - 1] in " \t\n"):
            self._at += 2
        elif letter == "#":
            self._at = self._find("\n", at)
        elif letter == "\n":
            self._at += 1
            self._end_command("\n")
            self._read_heredocs()
        elif found := _SEPARATOR.match(text, at):
            self._at = found.end()
            self._end_command(found[0])
        elif text.startswith(("<(", ">("), at):
            self._expansion("", at + 1)
        elif found := _REDIRECT.match(text, at):
            self._at = found.end()
            self._redirect(found[1] or "", found[2] or found[4])
        elif letter in "()":
            self._fail("it has parentheses")
            self._at += 1
            self._end_command("(")
        else:
            self._words.append(self._word())

    def _find(self, wanted: str, start: int) -> int:
        place = self._text.find(wanted, start)
        return len(self._text) if place < 0 else place

    # --- words -------------------------------------------------------------------------------------------

    def _word(self) -> tuple[Word, str]:
        """Reads a word. Its second value has a NUL in place of every quoted character."""
        text, start = self._text, self._at
        found = _COMMIT_MESSAGE.match(text, start)
        if found and not self._heredocs and sys.platform != "darwin":  # bash 3 misreads it
            self._at = found.end()
            self.commands.append(SimpleCommand((Word("cat"),)))
            return Word(found[2].rstrip("\n")), "\0"
        value: list[str] = []
        unquoted: list[str] = []
        head: str | None = None
        while self._at < len(text) and text[self._at] not in _WORD_END:
            if found := _PLAIN.match(text, self._at):
                self._at = found.end()
                value.append(found[0])
                unquoted.append(found[0])
                continue
            letter = text[self._at]
            if letter in "'\"":
                quoted, is_known = self._single() if letter == "'" else self._double()
            elif letter == "\\":
                quoted, is_known = self._escaped(), True
            elif letter == "`" or (letter == "$" and text[self._at + 1 : self._at + 2] not in " \t\n"):
                quoted, is_known = self._expansion("", self._at), False
            else:
                self._at += 1
                value.append(letter)
                unquoted.append(letter)
                continue
            if not is_known and head is None:
                head = "".join(value)
            value.append(quoted)
            unquoted.append("\0" * max(len(quoted), 1))
        shape = "".join(unquoted)
        if head is not None:
            return Word(text[start : self._at], "unknown", head), shape
        return Word("".join(value), "pattern" if self._is_pattern(shape) else "literal"), shape

    def _is_pattern(self, shape: str) -> bool:
        if shape.startswith("~") and shape != "~" and not shape.startswith("~/"):
            self._fail("it names another home folder")
        if re.search(r"[=:]~", shape):
            self._fail("`~` may be expanded inside a word")
        braces = shape[shape.find("{") : shape.rfind("}")] if "{" in shape else ""
        return shape.startswith("~") or bool(re.search(r"[*?\[]", shape) or re.search(r",|\.\.", braces))

    def _escaped(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if letter == "\n":
            self._fail("a line is broken in the middle of a word")
            return ""
        if not letter:
            self._break("it ends in a backslash")
        return letter

    def _single(self) -> tuple[str, bool]:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self._break("a quote is not closed")
            end = len(self._text)
        quoted = self._text[self._at + 1 : end]
        self._at = end + 1
        self._check_newline(quoted)
        return quoted, True

    def _double(self) -> tuple[str, bool]:
        """Reads a string in double quotes: its text, and whether that is known."""
        text = self._text
        value: list[str] = []
        is_known = True
        self._at += 1
        while self._at < len(text) and text[self._at] != '"':
            letter, following = text[self._at], text[self._at + 1 : self._at + 2]
            if letter == "\\" and following in '$`"\\\n':
                value.append(self._escaped())
            elif letter == "`" or (letter == "$" and following != '"'):
                value.append(self._expansion('"', self._at))
                is_known = False
            else:
                self._at += 1
                value.append(letter)
        if self._at >= len(text):
            self._break("a quote is not closed")
        self._at += 1
        quoted = "".join(value)
        self._check_newline(quoted)
        return quoted, is_known

    def _check_newline(self, quoted: str) -> None:
        if self._heredocs and "\n" in quoted:
            self._fail("a string of several lines stands beside a here-document")

    # --- what is not literal -------------------------------------------------------------------------------

    def _expansion(self, quote: str, start: int) -> str:
        """Skips an expansion, reads the commands in it as far as possible, and returns its source."""
        text = self._text
        if text.startswith(("$(", "(", "${"), start):
            end = self._closing(start + (text[start] == "$"))
        elif text[start] == "`":
            end = self._find("`", start + 1)
        elif not quote and text.startswith(("$'", '$"'), start):
            end = self._find(text[start + 1], start + 2)
        else:
            found = _PARAMETER.match(text, start)
            end = found.end() - 1 if found else start
        source = text[start : end + 1]
        self._fail(f"{source[:40]} is an expansion")
        if end >= len(text):
            self._break("an expansion is not closed")
        if not source.startswith("${") and (inside := re.match(r"(?:\$?\(|`)(.*)[)`]", source, re.DOTALL)):
            self.commands += self._read_inner(inside[1])
        self._at = end + 1
        return source

    def _closing(self, start: int) -> int:
        """Where the bracket at `start` is closed, or the end of the text."""
        depth = 0
        quote = ""
        for place in range(start, len(self._text)):
            letter = self._text[place]
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif letter in "({":
                depth += 1
            elif letter in ")}":
                depth -= 1
                if not depth:
                    return place
        return len(self._text)

    def _read_inner(self, text: str) -> tuple[SimpleCommand, ...]:
        """Reads what the shell would run inside this line, and returns its commands."""
        reading = _read(text, self._depth + 1)
        self.redirects.extend(reading.redirects)
        self._fail(reading.not_literal)
        self.broken = self.broken or reading.broken
        return reading.commands

    # --- redirections --------------------------------------------------------------------------------------

    def _redirect(self, number: str, operator: str) -> None:
        text = self._text
        self._has_redirect = True
        self._stdin = "redirection" if operator.startswith("<") else self._stdin
        before = text[max(self._at - 20, 0) : self._at - len(number + operator)]
        if before.endswith("}") or re.search(r"(?:^|[\s;&|()<>])[0-9]+$", before):
            self._fail("which file a redirection is about is unclear")
        if operator in ("<<", "<<-"):
            found = _HEREDOC.match(text, self._at)
            if operator == "<<-" or found is None:
                self._fail("a here-document has an unusual delimiter")
            if found is not None:
                self._at = found.end()
                self._heredocs.append((found[1] or found[2] or found[3], found[3] is None))
            return
        while text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._at >= len(text) or text[self._at] in _WORD_END:
            self._break("a redirection has no target")
            return
        target, shape = self._word()
        if operator == "<<<":
            return
        if operator in (">&", "<&"):
            if re.fullmatch(r"[0-9]+-?|-", target.text):
                return
            if operator == "<&" or number or not re.fullmatch(r"[\w./~][\w./~-]*", shape, re.ASCII):
                self._fail("which file a redirection is about is unclear")
        self.redirects.append(Redirect(target, operator != "<"))

    def _read_heredocs(self) -> None:
        text = self._text
        for delimiter, is_quoted in self._heredocs:
            lines_start = self._at
            end = re.compile(rf"^{delimiter}$", re.MULTILINE).search(text, lines_start)
            if end is None:
                self._break("a here-document has no end")
                self._at = len(text)
                break
            if not is_quoted and re.search(r"[$`\\]", text[lines_start : end.start()]):
                self._fail("a here-document may contain expansions")
                escaped = text[lines_start : end.start()].replace('"', " ")
                self.commands += self._read_inner(f': "{escaped}"')  # the commands of its substitutions
            self._at = min(end.end() + 1, len(text))
        self._heredocs.clear()

    # --- commands ------------------------------------------------------------------------------------------

    def _end_command(self, operator: str) -> None:
        words, has_redirect, stdin = self._words, self._has_redirect, self._stdin
        self._words, self._has_redirect = [], False
        if not words and not has_redirect:
            if operator not in ("", "\n", "("):
                self._break(f"nothing stands before `{operator}`")
            return
        self._stdin = "pipe" if operator in ("|", "|&") else ""
        self._needs_command = operator in ("|", "|&", "&&", "||")
        while words and words[0][0].kind == "literal" and words[0][1] in _OPENING:
            self._fail(f"`{words.pop(0)[1]}` begins a compound command")
        while words and (found := _ASSIGNMENT.match(words[0][1])):
            word, _ = words.pop(0)
            if word.kind != "literal" or not is_harmless_assignment(word.text) or not words:
                self._fail(f"setting {found[0].rstrip('=')} can change what is executed")
        if words:
            command = unwrap(SimpleCommand(tuple(word for word, _ in words)), self._read_inner, self._fail)
            self._simple_command(msgspec.structs.replace(command, stdin=stdin))

    def _simple_command(self, command: SimpleCommand) -> None:
        name = command.words[0].text
        if name in _RESERVED:
            self._fail(f"`{name}` belongs to a compound command")
            return
        for each in with_inner(command):
            self._check_name(each)
        self.commands.append(command)

    def _check_name(self, command: SimpleCommand) -> None:
        """Names that are not known, and builtins that run or change what is not seen here."""
        name, words = command.words[0], command.words
        has_pattern = name.text != "[" and re.search(r"[*?\[{]", name.text)
        if name.kind == "unknown" or not name.text or has_pattern:
            self._fail(f"the name of the program `{name.text[:40]}` is not literal")
        elif name.text in _BUILTINS:
            self._fail(f"`{name.text}` changes what the shell runs")
        elif name.text in _OPENING or name.text in _RESERVED:
            self._fail(f"`{name.text}` belongs to a compound command")
        elif name.text == "set" and not all(_SAFE_SET.fullmatch(word.text) for word in words[1:]):
            self._fail("`set` changes how the shell reads commands")
        elif name.text in _EVALUATES and any(map(_may_be_index, words[1:])):
            self._fail(f"`{name.text}` may evaluate an array's index")
        elif name.text == "printf" and any(_SETS_VARIABLE.search(word.text) for word in words[1:]):
            self._fail("`printf` sets a variable")


def _may_be_index(word: Word) -> bool:
    """Whether a builtin could take the word for an array's element whose index runs commands."""
    index = word.text.partition("[")[2]
    return word.kind == "pattern" or "$" in index or "`" in index
