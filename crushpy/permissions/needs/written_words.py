"""Which words of a command name what it changes: of programs that change what they are given."""

import re
from collections.abc import Iterator, Sequence

from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set

_CREATES = word_set("mkdir touch mkfifo")
_CHANGES = word_set("rm rmdir unlink shred truncate tee gzip gunzip bzip2 bunzip2 xz unxz zstd")
_AFTER_FIRST = word_set("chmod chown chgrp setfacl chattr")
"""The first operand says how."""
_INTO_LAST = word_set("cp ln install")
_VALUED = {
    **{"truncate": "sr", "touch": "rdt", "mkdir": "m", "install": "mogtS"},
    **dict.fromkeys(("cp", "mv", "ln"), "tS"),
}
"""Letters of options with a value."""


class WrittenWord(Data, frozen=True):
    """One word that names a file or a folder."""

    word: Word
    creates: bool = False
    """True where only what is not there yet appears: nothing is lost."""
    into: tuple[str, ...] = ()
    """Where a folder of that name is there, what appears in it."""


def written_words(command: SimpleCommand) -> list[WrittenWord]:
    """What this one simple command would change, as far as it is a program known to do so."""
    program, words = command.program, command.words[1:]
    operands = list(_operands(words, _VALUED.get(program, "")))
    if program in _CREATES:
        return [WrittenWord(word, creates=True) for word in operands]
    if program in _CHANGES:
        return [WrittenWord(word) for word in operands]
    if program in _AFTER_FIRST:
        return [WrittenWord(word, creates=True) for word in operands[1:]]  # the content stays
    if program in _INTO_LAST or program == "mv":
        folder = _option_value(words, "t", "target-directory")
        target = [folder] if folder else operands[-1:]
        sources = operands if folder else operands[:-1]
        moved = [WrittenWord(word) for word in sources] if program == "mv" else []
        names = tuple(word.text.rstrip("/").rpartition("/")[2] for word in sources)
        return [*moved, *(WrittenWord(word, into=names) for word in target)]
    if program in ("sed", "gsed", "perl") and _in_place(words):
        return [WrittenWord(word) for word in operands[0 if _gives_script(words) else 1 :]]
    if program == "dd":
        return [WrittenWord(Word(word.text[3:])) for word in words if word.text.startswith("of=")]
    if program == "patch":
        return [WrittenWord(word) for word in operands[:1]] or [WrittenWord(Word("."))]
    if program == "find" and any(word.text == "-delete" for word in words):
        starts = _before_first_test(words)
        return [WrittenWord(word) for word in starts or [Word(".")]]
    return [WrittenWord(word, into=("\1",)) for word in _outputs(program, words)]


def _outputs(program: str, words: Sequence[Word]) -> Iterator[Word]:
    """The file or folder that an option names."""
    options = {
        "curl": ("o", "output"),
        "wget": ("OP", "output-document directory-prefix"),
        "tar": ("C", "directory"),
        "unzip": ("d", ""),
        "sort": ("o", "output"),
    }
    short, long = options.get(program, ("", ""))
    for letter in short:
        for name in (*long.split(), ""):
            if found := _option_value(words, letter, name):
                yield found
                break


def _operands(words: Sequence[Word], valued: str) -> Iterator[Word]:
    skip = options_over = False
    for word in words:
        if skip:
            skip = False
        elif word.text == "--" and not options_over:
            options_over = True
        elif word.is_option and not options_over:
            skip = not word.text.startswith("--") and word.text[-1] in valued
        else:
            yield word


def _option_value(words: Sequence[Word], letter: str, name: str) -> Word | None:
    for place, word in enumerate(words):
        if not word.is_option:
            continue
        if name and word.text.startswith(f"--{name}="):
            return Word(word.text.partition("=")[2])
        glued = re.fullmatch(rf"-[a-zA-Z]*?{letter}(.+)", word.text) if letter else None
        if word.text == f"--{name}" or re.fullmatch(rf"-[a-zA-Z]*{letter}", word.text):
            return words[place + 1] if place + 1 < len(words) else None
        if glued and not word.text.startswith("--"):
            return Word(glued[1])
    return None


def _in_place(words: Sequence[Word]) -> bool:
    return any(word.is_option and re.match(r"-[a-zA-Z]*i|--in-place", word.text) for word in words)


def _gives_script(words: Sequence[Word]) -> bool:
    options = [word.text for word in words if word.is_option]
    return any(re.match(r"-[a-zA-Z]*[ef]$|--expression|--file", text) for text in options)


def _before_first_test(words: Sequence[Word]) -> list[Word]:
    starts: list[Word] = []
    for word in words:
        if word.text.startswith("-") or word.text in ("(", "!"):
            break
        starts.append(word)
    return starts
