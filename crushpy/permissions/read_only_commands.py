"""Programs that only read, the files they read, and whether reading those asks."""

import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import msgspec

from crushpy.core.access import Access
from crushpy.core.messages import Data
from crushpy.permissions.decision import Decision, ExecutionContext, by_rule, decide_path
from crushpy.permissions.path_rules import MAX_SEARCHED_FILES, is_forbidden_below, secret_places_in
from crushpy.permissions.risky_options import git_reads, is_long
from crushpy.permissions.risky_words import ALIKE, risky_words
from crushpy.permissions.rules import READ, RuleSet
from crushpy.permissions.shell.ast import SimpleCommand, Word, with_inner, word_set
from crushpy.security.safe_git import git_output

PLAIN_PROGRAMS = word_set(
    "ls cat head tail wc grep egrep fgrep rg echo pwd which type stat du df tree diff cmp sort uniq cut tr nl"
    " basename dirname realpath readlink date whoami id uname hostname seq sleep printf true false test [ :"
    " find fd fdfind sed awk gawk mawk column md5sum sha1sum sha256sum sha512sum od xxd hexdump strings file"
    " jq tac rev fold comm paste join expr mkdir touch cp mv rm rmdir ln chmod tee break continue return"
    " exit shift wait set cd"
)


class Reader(Data, frozen=True):
    """How to find the files that one program reads among its words. Long options are separated by spaces."""

    patterns: int = 0
    """How many of its first operands are not files: a search pattern, a script."""
    spares: str = ""
    """Letters of options that give the pattern instead, so that every operand is a file."""
    refused: str = ""
    """Letters of options that follow links or take file names from a file."""
    values: str = ""
    """Letters of options with a value that is not a file, attached or as the next word."""
    spares_long: str = ""
    refused_long: str = ""
    inside: str = ""
    """A regular expression no word may match: the script would read files by itself."""


_GREP = Reader(1, "ef", "fR", "ABCemdD", "regexp file", "file exclude-from dereference-recursive")
_CHECKSUM = Reader(refused="c", refused_long="check")
_PLAIN = Reader()

_READERS: dict[str, Reader] = {
    **dict.fromkeys(word_set("cat tac nl rev fold expand unexpand fmt uniq comm tail head readlink"), _PLAIN),
    **dict.fromkeys(word_set("realpath cmp column join od xxd hexdump ls stat df"), _PLAIN),
    **dict.fromkeys(
        word_set("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum"), _CHECKSUM
    ),
    **dict.fromkeys(word_set("grep egrep fgrep"), _GREP),
    **dict.fromkeys(word_set("cut paste"), Reader(values="d")),
    "wc": Reader(refused_long="files0-from"),
    "sort": Reader(refused="T", values="t", refused_long="files0-from temporary-directory"),
    "du": Reader(refused="LDX", refused_long="dereference dereference-args exclude-from files0-from"),
    "diff": Reader(refused="rX", refused_long="recursive exclude-from from-file to-file"),
    "file": Reader(refused="fmMzZ", refused_long="files-from magic-file uncompress"),
    "strings": Reader(inside=r"\A@"),
    "tree": Reader(refused="lR", refused_long="fromfile fromtabfile"),
    "rg": Reader(
        1, "ef", "fLz", "ABCEMTegjmrtd", "regexp file files type-list", "file follow ignore-file search-zip"
    ),
    "sed": Reader(1, "ef", "", "el", "expression file"),
    "awk": Reader(1, "", "", "Fv", "", "", r"getline|ARGV"),
    "jq": Reader(
        1, "", "fL", "", "", "from-file slurpfile rawfile argfile", r"\b(?:import|include|modulemeta)\b"
    ),
    "find": Reader(inside=r"\A(?:-L|-follow|-files0-from)\Z"),
    "fd": Reader(1, "", "LC", "eEtdSocj", "", "follow search-path base-directory"),
}
_COPIERS = {
    **dict.fromkeys(("ag", "ack", "zgrep"), Reader(1)),
    **dict.fromkeys(word_set("cp rsync scp tar zip bat less more base64 gzip bzip2 xz zstd"), _PLAIN),
}
"""Programs that print or copy files, without being known to only read."""
_LISTS = word_set("ls stat df du tree find fd readlink realpath")
"""Readers that print names, not contents, unless they run something."""
_RECURSIVE = word_set("rg ag ack find fd")
"""They read the current folder if their words name none."""
_RECURSES = re.compile(r"-\w*[rd]|--[rd]")
"""Options with which grep reads folders."""
_SHOWS_HIDDEN = re.compile(r"-\w*[u.]|--(?:hid|unr)")
_GIT_PRINTS = word_set(
    "grep diff show blame annotate archive cat-file format-patch whatchanged -p -u --patch"
)
"""Subcommands and options with which git prints or copies contents."""

_NO_FILE_PROGRAMS = word_set(
    "echo printf basename dirname seq sleep which type true false : expr whoami id uname hostname pwd date tr"
    " nproc uptime free groups"
)
"""Programs that do not read the files their words name."""
_REFUSED_LETTERS = {"date": "fr"}


def _find_reader(program: str) -> Reader | None:
    return _READERS.get(ALIKE.get(program, program))


def is_plain_reader(command: SimpleCommand) -> bool:
    """True if the program only reads, and no word writes, executes or hides what is read."""
    name = command.words[0].text
    if command.words[0].kind != "literal" or command.inner:
        return False
    if name == "command":
        literal = all(word.kind == "literal" for word in command.words)
        return literal and len(command.words) > 2 and command.words[1].text in ("-v", "-V")
    if risky_words(command):
        return False
    if name in _NO_FILE_PROGRAMS:
        letters = _REFUSED_LETTERS.get(name, "")
        return not any(set(word.text[1:]) & set(letters) for word in command.words if word.is_option)
    reader = _find_reader(name)
    return reader is not None and not any(_is_refused(word, reader) for word in command.words[1:])


def _is_refused(word: Word, reader: Reader) -> bool:
    if reader.inside and re.search(reader.inside, word.text):
        return True
    if not word.is_option:
        return word.kind == "unknown" and word.may_be_option
    if word.text.startswith("--"):
        return is_long(word.text[2:].partition("=")[0], reader.refused_long.split())
    for letter in word.text[1:]:
        if letter in reader.refused:
            return True
        if letter in reader.values:
            return False
    return False


def read_words(command: SimpleCommand, reader: Reader | None) -> Iterator[Word]:
    """All words of a reader that may name files."""
    words = command.words
    if reader is None:
        yield from (word for word in words[1:] if word.kind == "pattern")  # the shell expands them
        return
    patterns = 0 if any(_replaces_pattern(word, reader) for word in words[1:]) else reader.patterns
    is_value = options_over = False
    for word in words[1:]:
        if is_value and patterns:
            is_value = False
            if word.kind != "literal":
                yield word
        elif word.text == "--" and not options_over:
            options_over = True
        elif word.is_option and not options_over:
            is_value = _takes_next_word(word.text, reader)
            yield from _option_path(word.text, reader)
        elif patterns:
            patterns -= 1
            if word.kind == "pattern":
                yield word
        else:
            yield word


def _replaces_pattern(word: Word, reader: Reader) -> bool:
    """Whether an option replaces the pattern. In doubt it does, so that more words count as files."""
    if not word.is_option:
        return False
    if word.text.startswith("--"):
        return is_long(word.text[2:].partition("=")[0], reader.spares_long.split())
    return bool(set(word.text[1:]) & set(reader.spares))


def _takes_next_word(text: str, reader: Reader) -> bool:
    if text.startswith("--"):
        return False
    for index, letter in enumerate(text[1:], 2):
        if letter in reader.values:
            return index == len(text)
    return False


def _option_path(text: str, reader: Reader) -> Iterator[Word]:
    """A value attached to an option that may be a path."""
    if text.startswith("--"):
        _, equals, value = text.partition("=")
        if equals:
            yield Word(value)
        return
    for index, letter in enumerate(text[1:], 2):
        if letter in reader.values:
            return
        if text[index : index + 1] in ("/", "~", "."):
            yield Word(text[index:])
            return


def _git_paths(word: Word) -> Iterator[Word]:
    """What git may take for a file in a word: `README`, `HEAD:README`, `:(top)README`, `--contents=x`."""
    if word.is_option:
        yield from _option_path(word.text, _PLAIN)
    else:
        yield word if word.kind != "literal" else Word(re.split(r"[:)]", word.text)[-1])


def _files_below(folder: str, *, hidden: bool) -> Iterator[str]:
    """The files below a folder, relative to it. Links are not followed. `hidden`: also names with a dot."""
    for current, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if hidden or not name.startswith(".")]
        prefix = f"{current[len(folder) :].strip('/')}/".lstrip("/")
        yield from (prefix + name for name in names if hidden or not name.startswith("."))


def _tracked_files(folder: str) -> Iterator[str]:
    """The files below a folder that git tracks, relative to it."""
    names = (git_output(Path(folder), "ls-files", "-z") or b"").split(b"\0")
    return (os.fsdecode(name) for name in names if name)


_MAX_GLOB_FILES = 1_000
"""A glob pattern that matches more asks."""


class ReadOnlyPolicy:
    """The decisions about those commands of one line that only read."""

    def __init__(
        self, folders: Sequence[Path], rules: RuleSet, workspace: Path, guard: ExecutionContext
    ) -> None:
        """`folders`: where the line may run; empty if unknown."""
        self._folders = folders
        self._rules = rules
        self._workspace = workspace
        self._guard = guard

    def parts(self, command: SimpleCommand) -> list[Decision]:
        """One decision for each file it reads; none if it may do more than read."""
        if command.inner:
            inner = [self.parts(each) for each in command.inner] if command.transparent else []
            return [part for parts in inner for part in parts] if all(inner) else []
        name = command.words[0].text
        if name == "git":
            reads = self._guard.trusted and bool(self._folders) and git_reads(command.words)
            words = [path for word in command.words[2:] for path in _git_paths(word)]
        else:
            reads = is_plain_reader(command)
            words = list(read_words(command, _find_reader(name))) if reads else []
        paths = [self._paths_of(word) for word in words]
        if not reads or None in paths or self._is_from_workspace(name):
            return []
        allowed = Decision("allow", f"`{str(command)[:60]}` only reads")
        reading = (Access(READ, "path", path) for path in dict.fromkeys(chain(*filter(None, paths))))
        decided = (decide_path(access, self._rules, self._workspace) for access in reading)
        return [allowed, *(one for one in decided if one.verdict != "allow")]

    def forbidden(self, command: SimpleCommand) -> list[Decision]:
        """What forbids reading the files that a command and those inside it read, whatever allows it.

        Deny and ask rules for `view`, and without a sandbox known locations of secrets. Of a folder, all
        files in it count.
        """
        leaves = (each for each in with_inner(command) if not each.inner)
        return [part for leaf in leaves for part in self._forbidden_to(leaf)]

    def _forbidden_to(self, command: SimpleCommand) -> Iterator[Decision]:
        program = ALIKE.get(command.program, command.program)
        options = [word.text for word in command.words if word.is_option]
        is_git = program == "git" and any(word.text in _GIT_PRINTS for word in command.words[1:])
        prints_names = "--files" in options or (program in _LISTS and not risky_words(command))
        if is_git:
            words = [path for word in command.words[2:] for path in _git_paths(word)]
        elif program not in _READERS | _COPIERS or prints_names:
            return
        else:
            words = list(read_words(command, (_READERS | _COPIERS)[program]))
            if program in ("cp", "rsync", "scp") and not any(
                text.startswith(("-t", "--t")) for text in options
            ):
                words = words[:-1]
        paths = [path for word in words for path in self._paths_of(word) or ()]
        searches = program in _RECURSIVE and command.stdin != "pipe"
        if not any(map(os.path.lexists, paths)) and (
            is_git or searches or ("grep" in program and any(map(_RECURSES.match, options)))
        ):
            paths += map(str, self._folders)
        skips_hidden = program in ("rg", "ag", "fd") and not any(map(_SHOWS_HIDDEN.match, options))
        for path in dict.fromkeys(paths):
            decided = decide_path(Access(READ, "path", path), self._rules, self._workspace)
            if decided.by == "rule" and decided.verdict != "allow":
                yield decided
            elif os.path.isdir(path):  # noqa: PTH112
                names = _tracked_files(path) if is_git else _files_below(path, hidden=not skips_hidden)
                yield from self._forbidden_in(path, names)
                if not (is_git or decided.by or self._guard.sandbox) and (
                    secrets := secret_places_in(Path(path).resolve())
                ):
                    yield Decision("ask", f"no rule allows reading secrets: {secrets[0]}")

    def _forbidden_in(self, folder: str, found: Iterator[str]) -> Iterator[Decision]:
        rules = [rule for rule in (*self._rules.deny, *self._rules.ask) if rule.tool == READ]
        names = list(islice(found, MAX_SEARCHED_FILES + 1)) if rules else []
        for rule in rules:
            if is_forbidden_below(rule, Path(os.path.realpath(folder)), names, self._workspace):
                decided = by_rule("deny" if rule in self._rules.deny else "ask", rule)
                why = f"{decided.reason}: {folder} contains such files (the grep tool skips them)"
                yield msgspec.structs.replace(decided, reason=why)
                return

    def _is_from_workspace(self, program: str) -> bool:
        """Whether the shell would find a program of the workspace, which may do anything."""
        elements = os.environ.get("PATH", os.defpath).split(os.pathsep)
        for folder in self._folders:
            path = os.pathsep.join(os.path.join(folder, each) for each in elements)  # noqa: PTH118
            found = shutil.which(program, path=path)
            if found and Path(found).parent.resolve().is_relative_to(self._workspace.resolve()):
                return True
        return False

    def held_back(self, command: SimpleCommand) -> str:
        """Why a command that only reads still asks, as the end of a sentence."""
        if command.words[0].text == "git" and not self._guard.trusted and git_reads(command.words):
            return ": the project's settings can make git run programs, and the project is not trusted"
        return ""

    def _paths_of(self, word: Word) -> list[str] | None:
        """The paths a word names in every folder where the line may run; None if unknown."""
        if word.kind == "unknown" or not self._folders or "\0" in word.text:
            return None
        per_folder = [named_paths(word, folder) for folder in self._folders]
        if None in per_folder:
            return None
        paths = list(chain(*filter(None, per_folder)))
        return paths if self._has_file_rules else list(_one_per_folder(paths))

    @cached_property
    def _has_file_rules(self) -> bool:
        """True if a rule may forbid one file and not the one beside it."""
        return any(rule.tool == READ for rule in (*self._rules.deny, *self._rules.ask))


def named_paths(word: Word, folder: Path) -> list[str] | None:
    """The paths a word names; None if unknown."""
    text = word.text
    if word.kind == "literal":
        return [str(folder / text)]
    if text.startswith("~"):
        home, _, rest = text.partition("/")
        if home != "~":
            return None
        folder, text = Path.home(), rest
    if not re.search(r"[*?\[{]", text):
        return [str(folder / text)]
    if re.search(r"[\[{}\\]", text):
        return None  # bash and Python read these in different ways
    pattern = text if text.startswith("/") else f"{glob.escape(str(folder))}/{text}"
    found = list(islice(glob.iglob(pattern), _MAX_GLOB_FILES + 1))  # noqa: PTH207 (hides what bash hides)
    is_option = any(os.path.relpath(path, folder).startswith("-") for path in found) and text[0] in "*?"
    return None if len(found) > _MAX_GLOB_FILES or is_option else found or [str(folder / text)]


def _one_per_folder(paths: Sequence[str]) -> Iterator[str]:
    """One path for each folder, and each link: enough if only the location matters."""
    folders: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder not in folders or os.path.islink(path):  # noqa: PTH114
            folders.add(folder)
            yield path
