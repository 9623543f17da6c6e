"""Reads a shell command without running it: every simple command in it, at any depth, and every redirection.

What is not known for certain is reported as unreadable. The parser is more lenient than bash, so the whole
source must be accounted for: what no node speaks of, and words that bash would cut elsewhere, are unreadable.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from crushpy.permissions.shell import unsafe_syntax
from crushpy.permissions.shell.ast import (
    Assignment,
    Redirect,
    ShellReading,
    SimpleCommand,
    Word,
    with_inner,
    word_set,
)
from crushpy.permissions.shell.heredocs import check_heredoc
from crushpy.permissions.shell.word_reader import EXPANSIONS, WordReader
from crushpy.permissions.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEEPEST = 60
_BLOCKS = word_set(
    "program list pipeline subshell do_group if_statement elif_clause else_clause while_statement"
    " negated_command command_substitution process_substitution"
)
_REDIRECTS = word_set("file_redirect herestring_redirect heredoc_redirect")
_TEST_PARTS = word_set("binary_expression unary_expression parenthesized_expression")
_SIMPLE_EXPANSION = word_set(
    "${ } $ ! # variable_name special_variable_name word number string raw_string concatenation regex"
    " : :- - := = :+ + :? ? % %% ## / // /# /% ^ ^^ , ,, simple_expansion expansion command_substitution"
)
_INDEXED = "it sets an array's element, whose index can run commands"


@lru_cache(maxsize=256)
def parse_shell(command: str) -> ShellReading:
    """What bash would do with `command`."""
    return _read(command, 0)


def _read(command: str, depth: int) -> ShellReading:
    reader = _Reader(command, depth)
    reader.run()
    return ShellReading(
        tuple(reader.commands),
        tuple(reader.redirects),
        tuple(reader.variables),
        reader.loops,
        reader.unreadable,
    )


class _Reader:
    """One walk over one command line. Goes on after what it cannot read: a deny may match the rest."""

    def __init__(self, command: str, depth: int) -> None:
        self.commands: list[SimpleCommand] = []
        self.redirects: list[Redirect] = []
        self.variables: list[Assignment] = []
        self.loops = False
        self.unreadable = ""
        self._depth = depth
        self._command = command
        # A command with a lone surrogate is never run, so any mark will do; `encodable` would join halves.
        self._source = command.encode(errors="replace")
        self._words = WordReader(self._source, self._substitution, self.fail)

    def fail(self, reason: str) -> None:
        """Notes why it cannot be read; an empty reason is none."""
        self.unreadable = self.unreadable or reason

    def run(self) -> None:
        self.fail(unsafe_syntax.in_text(self._command))
        if len(self._source) > unsafe_syntax.LONGEST:
            return
        root = _parser().parse(self._source).root_node
        if root.has_error:
            self.fail("it cannot be read as a shell command")
        if self._source[: root.start_byte].strip() or self._source[root.end_byte :].strip():
            self.fail("part of it cannot be read")
        self._statement(root)

    def _text(self, node: "Node") -> str:
        return self._words.text(node)

    def _strange(self, node: "Node") -> None:
        self.fail(f"`{self._text(node)[:40]}` cannot be judged")

    # --- statements ------------------------------------------------------------------------------------

    def _statement(self, node: "Node") -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail("it is nested too deeply")
        elif node.type == "comment":
            self.fail(unsafe_syntax.in_comment(node, self._source))
        elif node.is_named:
            self.fail(unsafe_syntax.in_gaps(node, self._source))
            self._dispatch(node)
        self._depth -= 1

    def _dispatch(self, node: "Node") -> None:
        kind = node.type
        self.loops = self.loops or kind in ("for_statement", "while_statement")
        if kind in _BLOCKS or node.is_error:
            self._each(node)
        elif kind == "command":
            self._simple_command(node, [])
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind == "compound_statement":
            self.fail(unsafe_syntax.in_group(node, self._source))
            self._each(node)
        elif kind in ("variable_assignment", "variable_assignments"):
            self.variables.extend(self._assignments(node))
        elif kind in ("declaration_command", "unset_command"):
            self._declaration(node)
        elif kind in ("for_statement", "case_statement", "case_item"):
            self._with_values(node)
        elif kind == "test_command":
            self.fail(unsafe_syntax.in_test(node, self._source))
            self._test(node, double=node.children[0].type == "[[")
        elif kind == "function_definition":
            self.fail("it defines a shell function")
            if body := node.child_by_field_name("body"):
                self._statement(body)
        else:
            self._strange(node)
            self._each(node)

    def _each(self, node: "Node") -> None:
        for child in node.children:
            self._statement(child)

    def _with_values(self, node: "Node") -> None:
        """A loop over words, or a choice by patterns."""
        for index, child in enumerate(node.children):
            field = node.field_name_for_child(index)
            if field == "variable":
                self.variables.append(Assignment(self._text(child), None))
            elif field == "value":
                self._words.read(child)
            else:
                self._statement(child)

    def _test(self, node: "Node", *, double: bool) -> None:
        self.fail(unsafe_syntax.in_test_expression(node, self._source, double=double))
        for child in node.children:
            if child.type in _TEST_PARTS:
                self.fail(unsafe_syntax.in_gaps(child, self._source))
                self._test(child, double=double)
            elif child.is_named and child.type != "test_operator":
                self.fail(unsafe_syntax.in_test_word(self._words.part(child), double=double))

    def _declaration(self, node: "Node") -> None:
        # `declare`, `typeset` and `readonly` keep what an earlier export said: all count as handing on.
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.variables.extend(replace(each, exported=True) for each in self._assignments(child))
            elif unsafe_syntax.NAME.fullmatch(self._text(child)):
                self.variables.append(Assignment(self._text(child), None, exported=True))
            elif self._text(child) not in ("-x", "-r", "-g"):
                self._strange(node)

    def _assignments(self, node: "Node") -> list[Assignment]:
        self.fail(unsafe_syntax.in_gaps(node, self._source))
        if node.type == "variable_assignments":
            return [each for child in node.children for each in self._assignments(child)]
        self._words.check_start(node)
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            self.fail(_INDEXED)
            self._each(node)
            return []
        if not unsafe_syntax.NAME.fullmatch(self._text(name)):
            self._strange(node)
        if value is None:
            return [Assignment(self._text(name), "")]
        if value.type != "array":
            word = self._words.read(value, before=b"=")
            return [Assignment(self._text(name), word.text if word.kind == "literal" else None)]
        for child in value.children[1:-1]:
            if self._words.read(child).text.startswith("["):
                self.fail(_INDEXED)
        return [Assignment(self._text(name), None)]

    # --- simple commands and redirections ----------------------------------------------------------------

    def _redirected(self, node: "Node") -> None:
        body: Node | None = None
        extra: list[Word] = []
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "body":
                body = child
            elif child.is_named:
                extra.extend(self._redirect(child))
        if body is not None and body.type == "command":
            self.fail(unsafe_syntax.in_gaps(body, self._source))
            self._simple_command(body, extra)
            return
        if extra:
            self.fail("there are words after a redirection that belong to no command")
        if body is not None:
            self._statement(body)

    def _redirect(self, node: "Node") -> list[Word]:
        """Notes one redirection; gives back the command's words that stand after its target."""
        self.fail(unsafe_syntax.in_gaps(node, self._source))
        self.fail(unsafe_syntax.in_redirect(node, self._source))
        if node.type == "heredoc_redirect":
            return self._heredoc(node)
        if node.type not in _REDIRECTS:
            self._strange(node)
            return []
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        words = [self._words.read(child) for child in targets]
        if operator == "<<<":
            return words[1:]
        if not words or operator.endswith("-"):
            return words
        duplicates = operator in (">&", "<&")
        if duplicates and not re.fullmatch(r"[\w./~][\w./~-]*|-", words[0].text):
            self.fail(
                "which file a redirection is about cannot be read"
            )  # bash reads these words its own way
        if not (duplicates and re.fullmatch(r"\d+-?|-", words[0].text)):
            self.redirects.append(Redirect(words[0], operator != "<"))
        return words[1:]

    def _heredoc(self, node: "Node") -> list[Word]:
        self.fail(check_heredoc(node, self._source))
        extra: list[Word] = []
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "argument":
                extra.append(self._words.read(child))
            elif child.type in _REDIRECTS:
                extra.extend(self._redirect(child))
            elif child.type == "heredoc_body":
                for part in child.children:
                    if part.type in EXPANSIONS:
                        self._substitution(part)
            elif child.type not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                self._statement(child)
        return extra

    def _simple_command(self, node: "Node", extra: list[Word]) -> None:
        words: list[Word] = []
        variables: list[Assignment] = []
        for child in node.children:
            if child.type == "variable_assignment":
                variables.extend(self._assignments(child))
            elif child.type in _REDIRECTS:
                words.extend(self._redirect(child))
            else:
                words.append(self._words.read(child))
        words.extend(extra)
        if not words:
            self.variables.extend(variables)
            return
        command = unwrap(SimpleCommand(tuple(words), tuple(variables)), self._script)
        for each in with_inner(command):
            self.fail(unsafe_syntax.in_name(each.words))
        self.commands.append(command)

    def _script(self, script: str) -> tuple[SimpleCommand, ...]:
        """Reads what a shell inside this one would run."""
        reading = _read(script, self._depth + 10)
        self.redirects.extend(reading.redirects)
        self.variables.extend(reading.variables)
        self.loops = self.loops or reading.loops
        self.fail(reading.unreadable)
        return reading.commands

    # --- substitutions -----------------------------------------------------------------------------------

    def _substitution(self, node: "Node") -> None:
        source = self._text(node)
        if node.type in ("command_substitution", "process_substitution"):
            if source.startswith("`") and "\\" in source:
                self.fail("backticks with escapes in them cannot be read")
            self._statement(node)
        elif node.type == "arithmetic_expansion":
            self.fail(unsafe_syntax.in_arithmetic(source))
        elif not re.match(r"\$(\w+|[@*#?$!-])$|\$\{[!#]?[\w@*#?$!-]", source):
            self._strange(node)
        elif node.type == "expansion":
            self._expansion(node)

    def _expansion(self, node: "Node") -> None:
        self.fail(unsafe_syntax.in_expansion(self._text(node)))
        if assigned := re.match(r"\$\{(\w+):?=", self._text(node)):
            self.variables.append(Assignment(assigned[1], None))
        for child in node.children:
            if child.type not in _SIMPLE_EXPANSION:
                self._strange(node)
                self._each(child)
            elif child.is_named and child.type not in ("variable_name", "special_variable_name"):
                self._words.part(child)


@lru_cache(maxsize=1)
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
