"""Programs that only read, and how each is told what to read."""

import re
from collections.abc import Iterator, Sequence

from crushpy.core.messages import Data
from crushpy.permissions.risk.risky_options import is_long
from crushpy.permissions.risk.risky_words import risky_words
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set


class Reader(Data, frozen=True):
    """How to find the files that one program reads among its words."""

    patterns: int = 0
    """How many of its first operands are no files: what is searched for, a script."""
    spares: str = ""
    """Letters of options that give the pattern instead, so that every operand is a file."""
    spares_long: tuple[str, ...] = ()
    refused: str = ""
    """Letters of options with which it follows links or takes names from a file: that cannot be judged."""
    refused_long: tuple[str, ...] = ()
    values: str = ""
    """Letters of options that surely have a value, glued on or the next word, which is no file."""
    inside: str = ""
    """A pattern of what no word may hold: with it a script reads files by itself."""


def _reader(
    patterns: int = 0,
    spares: str = "",
    refused: str = "",
    values: str = "",
    spares_long: str = "",
    refused_long: str = "",
    inside: str = "",
) -> Reader:
    return Reader(
        patterns, spares, tuple(spares_long.split()), refused, tuple(refused_long.split()), values, inside
    )


_GREP = _reader(1, "ef", "fR", "ABCemdD", "regexp file", "file exclude-from dereference-recursive")
_CHECKSUM = _reader(refused="c", refused_long="check")
_PLAIN = _reader()

_READERS: dict[str, Reader] = {
    **dict.fromkeys(
        word_set("cat tac nl rev fold expand unexpand fmt cksum uniq comm tail head readlink"), _PLAIN
    ),
    **dict.fromkeys(word_set("realpath cmp column join od xxd hexdump ls stat df"), _PLAIN),
    **dict.fromkeys(word_set("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum"), _CHECKSUM),
    **dict.fromkeys(word_set("grep egrep fgrep"), _GREP),
    **dict.fromkeys(word_set("cut paste"), _reader(values="d")),
    "wc": _reader(refused_long="files0-from"),
    "sort": _reader(refused="T", values="t", refused_long="files0-from temporary-directory"),
    "du": _reader(refused="LDX", refused_long="dereference dereference-args exclude-from files0-from"),
    "diff": _reader(refused="rX", refused_long="recursive exclude-from from-file to-file"),
    "file": _reader(refused="fmMzZ", refused_long="files-from magic-file uncompress"),
    "strings": _reader(inside=r"\A@"),
    "tree": _reader(refused="l", refused_long="fromfile fromtabfile"),
    "rg": _reader(
        1, "ef", "fLz", "ABCEMTegjmrtd", "regexp file files type-list", "file follow ignore-file search-zip"
    ),
    "sed": _reader(1, "ef", "", "el", "expression file"),
    "awk": _reader(1, "", "", "Fv", "", "", r"getline|ARGV"),
    "jq": _reader(
        1, "", "fL", "", "", "from-file slurpfile rawfile argfile", r"\b(?:import|include|modulemeta)\b"
    ),
    "find": _reader(inside=r"\A(?:-L|-follow|-files0-from)\Z"),
    "fd": _reader(1, "", "L", "eEtdSocj", "", "follow"),
}
_ALIKE = {"gawk": "awk", "mawk": "awk", "gsed": "sed", "fdfind": "fd"}

_SAY = word_set(
    "echo printf basename dirname seq sleep which type true false : expr whoami id uname hostname pwd date tr"
    " nproc arch uptime free groups"
)
"""They read no file that their words name."""
_SAY_REFUSED = {"date": "fr"}


def _reader_named(program: str) -> Reader | None:
    return _READERS.get(_ALIKE.get(program, program))


def is_plain_reader(command: SimpleCommand) -> bool:
    """True for a program that only reads, none of whose words write, execute or hide what is read."""
    name = command.words[0].text
    if command.words[0].kind != "literal" or command.inner:
        return False
    if name == "command":
        return len(command.words) > 2 and command.words[1].text in ("-v", "-V") and _spelled(command.words)
    if risky_words(command):
        return False
    if name in _SAY:
        letters = _SAY_REFUSED.get(name, "")
        return not any(set(word.text[1:]) & set(letters) for word in command.words if word.is_option)
    reader = _reader_named(name)
    return reader is not None and not any(_is_refused(word, reader) for word in command.words[1:])


def _spelled(words: Sequence[Word]) -> bool:
    return all(word.kind == "literal" for word in words)


def _is_refused(word: Word, reader: Reader) -> bool:
    if reader.inside and re.search(reader.inside, word.text):
        return True
    if not word.is_option:
        return word.kind == "unknown" and word.may_be_option
    if word.text.startswith("--"):
        return is_long(word.text[2:].partition("=")[0], reader.refused_long)
    for letter in word.text[1:]:
        if letter in reader.refused:
            return True
        if letter in reader.values:
            return False
    return False


def read_words(command: SimpleCommand) -> Iterator[Word]:
    """The words of a plain reader that may name files, and perhaps others; never fewer."""
    words = command.words
    reader = _reader_named(words[0].text)
    if reader is None:
        yield from (word for word in words[1:] if word.kind == "pattern")  # the shell looks for files
        return
    patterns = 0 if any(_spares(word, reader) for word in words[1:]) else reader.patterns
    is_value = options_over = False
    for word in words[1:]:
        if is_value and patterns:
            is_value = False
            if word.kind != "literal":
                yield word
        elif word.text == "--" and not options_over:
            options_over = True
        elif word.is_option and not options_over:
            is_value = _takes_next(word.text, reader)
            yield from _in_option(word.text, reader)
        elif patterns:
            patterns -= 1
            if word.kind == "pattern":
                yield word
        else:
            yield word


def _spares(word: Word, reader: Reader) -> bool:
    """Whether an option takes the place of the pattern. In doubt it does: then more is looked at."""
    if not word.is_option:
        return False
    if word.text.startswith("--"):
        return is_long(word.text[2:].partition("=")[0], reader.spares_long)
    return bool(set(word.text[1:]) & set(reader.spares))


def _takes_next(text: str, reader: Reader) -> bool:
    if text.startswith("--"):
        return False
    for place, letter in enumerate(text[1:], 2):
        if letter in reader.values:
            return place == len(text)
    return False


def _in_option(text: str, reader: Reader) -> Iterator[Word]:
    """What is glued to an option and may be a path."""
    if text.startswith("--"):
        _, equals, value = text.partition("=")
        if equals:
            yield Word(value)
        return
    for place, letter in enumerate(text[1:], 2):
        if letter in reader.values:
            return
        if text[place : place + 1] in ("/", "~", "."):
            yield Word(text[place:])
            return
