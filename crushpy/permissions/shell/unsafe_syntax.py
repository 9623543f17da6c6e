"""What cannot be judged in a shell command although it parses: each check gives the reason, or nothing."""

import re
from typing import TYPE_CHECKING

from crushpy.permissions.shell.ast import Word, word_set

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 100_000
CALCULATES = "it calculates with variables, which can run commands"
NAME = re.compile(r"[A-Za-z_]\w*")

_UNREADABLE_COMMANDS = word_set(
    "eval source . alias unalias trap bind complete compgen compopt enable let coproc fc mapfile readarray"
    " getopts shopt hash history"
)
_RESERVED = word_set(
    "if then elif else fi for while until do done case esac in select function { } [[ ]] ! (( ))"
)
_SAFE_SET = re.compile(r"[-+][euxfC]+|[-+]o|pipefail|errexit|nounset|xtrace|noglob|--")
_ARITHMETIC_TESTS = word_set("-eq -ne -lt -le -gt -ge")
_SURE_NUMBER = re.compile(r"-?\d+|\$[#?$!]|\"\$[#?$!]\"")
_CONSTANT_SUM = re.compile(r"\$\(\([\d\s+*/%()<>=&|^~!?:-]*\)\)")
_CALCULATED_PART = re.compile(r"\$\{#?(?:\w+|[-@*#?$!])(?:\[.*\])?:(?![-+=?])", re.DOTALL)
"""`${x:y}` of a variable, a special parameter or an array's element. It also matches a few forms that bash
does not calculate, such as `${#-:y}`."""
_CONSTANT_PART = re.compile(r"\$\{(?:\w+|[-@*#?$]): ?-?\d+(?:: ?-?\d+)?\}")
_EVALUATES = word_set("test [ read printf wait unset")
"""Builtins that evaluate the index in a variable's name they are given."""
_ODD = re.compile(r"[^\S \t\n]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and blanks that are none to bash."""
_ONE_LINE = word_set(
    "command file_redirect herestring_redirect variable_assignment variable_assignments declaration_command"
    " unset_command"
)
"""Nodes that a line's end would cut in two."""


def in_text(command: str) -> str:
    """What makes the parser and bash disagree, seen before parsing."""
    if len(command.encode(errors="replace")) > LONGEST:
        return "it is too long to be read"
    if odd := _ODD.search(command):
        return f"it holds the unusual character U+{ord(odd[0]):04X}"
    if re.search(r"\S\\\n\S", command):
        return "a line is broken in the middle of a word"
    return ""


def in_gaps(node: "Node", source: bytes) -> str:
    """Whatever no child speaks of must be blank: the parser may have skipped what bash would run."""
    blanks = b" \t" if node.type in _ONE_LINE else b" \t\n"
    end = node.start_byte
    for child in node.children:
        gap = source[end : child.start_byte]
        if gap.replace(b"\\\n", b"").strip(blanks) or (gap and node.type == "variable_assignment"):
            return "part of it cannot be read"
        if not child.is_named and source[child.start_byte : child.end_byte].strip() not in (
            b"",
            child.type.encode(),
        ):
            return "part of it cannot be read"  # `-x<<` is not an operator
        end = max(end, child.end_byte)
    return "part of it cannot be read" if node.child_count and source[end : node.end_byte].strip() else ""


def in_comment(node: "Node", source: bytes) -> str:
    before = source[max(node.start_byte - 1, 0) : node.start_byte]
    return "what looks like a comment is none" if before.strip(b" \t\n;&|()") else ""


def in_name(words: tuple[Word, ...]) -> str:
    """Programs whose name is not known, and builtins that run or change what is not seen here."""
    name = words[0]
    from_home = name.kind == "pattern" and name.text.startswith("~/") and not re.search(r"[*?\[{]", name.text)
    if not name.text or not (name.kind == "literal" or from_home):
        return f"the program's name `{name.text[:40]}` is not known before it runs"
    if name.text in _UNREADABLE_COMMANDS:
        return f"`{name.text}` runs what cannot be read here"
    if name.text in _RESERVED:
        return f"`{name.text}` stands where a program's name should be"
    if name.text in _EVALUATES and any(
        "[" in word.text and re.search(r"\$\(|`", word.text) for word in words
    ):
        return f"`{name.text}` can run what stands in an array's index"
    if name.text == "set" and not all(_SAFE_SET.fullmatch(word.text) for word in words[1:]):
        return "it changes how the shell reads commands"
    return ""


def in_redirect(node: "Node", source: bytes) -> str:
    """A number before `>` is one only if it stands alone; `{name}>` would open a file under a new number."""
    before = source[max(node.start_byte - 1, 0) : node.start_byte]
    for child in node.children:
        if child.type == "file_descriptor":
            digits = source[child.start_byte : child.end_byte].isdigit()
            if before.strip(b" \t\n;&|()<>") or not digits:
                return "which file a redirection is about cannot be read"
    number_before = re.search(
        rb"(?:^|[\s;&|()<>])\d+$", source[max(node.start_byte - 9, 0) : node.start_byte]
    )
    return "which file a redirection is about cannot be read" if before == b"}" or number_before else ""


def in_group(node: "Node", source: bytes) -> str:
    """`{ ...; }`, which needs a blank after its brace; `{}` is a word."""
    opening = node.children[0] if node.children else node
    if opening.type == "((":
        return CALCULATES
    after = source[opening.end_byte : opening.end_byte + 1]
    return "" if opening.type == "{" and after.isspace() else "part of it cannot be read"


def in_test(node: "Node", source: bytes) -> str:
    """`[ ... ]` and `[[ ... ]]`."""
    opening, closing = node.children[0], node.children[-1]
    if opening.type not in ("[", "[["):
        return CALCULATES
    inside = source[opening.end_byte : closing.start_byte]
    one_word = opening.type == "[" and re.search(rb"[;&|<>()]", inside)
    if not inside[:1].isspace() or not inside[-1:].isspace() or b"\n" in inside or one_word:
        return "a test in it cannot be read"
    return ""


def in_test_expression(node: "Node", source: bytes, *, double: bool) -> str:
    texts = [source[child.start_byte : child.end_byte].decode(errors="replace") for child in node.children]
    operators = {
        text for text, child in zip(texts, node.children, strict=True) if child.type == "test_operator"
    }
    if operators & {"-v", "-R"}:
        return "a test of a variable's name can run commands"
    sure = all(_SURE_NUMBER.fullmatch(side) for side in (texts[0], texts[-1]))
    return CALCULATES if double and operators & _ARITHMETIC_TESTS and not sure else ""


def in_test_word(word: Word, *, double: bool) -> str:
    """`[ $x ]` becomes `[ -v name ]` where x holds that; `[[` cuts no word in pieces."""
    several = word.splits or (word.kind == "pattern" and re.search(r"[*?\[{]", word.text))
    return "a test in it may turn into another one" if several and not double else ""


def in_expansion(source: str) -> str:
    """`${x:y}` calculates y, `${x:-y}` and its like do not; `${!x}` evaluates the index in a name x holds."""
    if source.startswith("${!"):
        return "it expands a name that a variable holds, which can run commands"
    return CALCULATES if _CALCULATED_PART.match(source) and not _CONSTANT_PART.fullmatch(source) else ""


def in_arithmetic(source: str) -> str:
    """`$((x))` evaluates what x holds, and that may run commands: only constants are harmless."""
    return "" if _CONSTANT_SUM.fullmatch(source) else CALCULATES
