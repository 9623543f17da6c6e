"""Programs that only read, the files they read, and whether reading those asks."""

import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import msgspec

from crushpy.core.access import Access
from crushpy.core.messages import Data
from crushpy.permissions.decision import Decision, ExecutionContext, by_rule, decide_path
from crushpy.permissions.path_rules import MAX_SEARCHED_FILES, is_forbidden_below, secret_places_in
from crushpy.permissions.risky_options import Risk, git_reads, option_value
from crushpy.permissions.risky_words import ALIKE, risky_words
from crushpy.permissions.rules import READ, RUN, RuleSet
from crushpy.permissions.shell.ast import ShellReading, SimpleCommand, Word, with_inner, word_set
from crushpy.security.safe_git import git_output


class Reader(Data, frozen=True):
    """How to find the files that one program reads among its words. Options: letters, and names in a text."""

    patterns: int = 0
    """How many of its first operands are not files: a search pattern, a script."""
    spares: tuple[str, str] = ("", "")
    """Options that give the pattern instead, so that every operand is a file."""
    refused: tuple[str, str] = ("", "")
    """Options that follow links or take file names from a file."""
    values: str = ""
    """Letters of options with a value that is not a file, attached or as the next word."""
    inside: str = ""
    """A regular expression no word may match: the script would read files by itself."""


_GREP = Reader(1, ("ef", "regexp file"), ("fR", "file exclude-from dereference-recursive"), "ABCemdD")
_CHECKSUM = Reader(refused=("c", "check"))
_PLAIN = Reader()

_READERS: dict[str, Reader] = {
    **dict.fromkeys(word_set("cat tac nl rev fold expand unexpand fmt uniq comm tail head readlink"), _PLAIN),
    **dict.fromkeys(word_set("realpath cmp column join od xxd hexdump ls stat df"), _PLAIN),
    **dict.fromkeys(
        word_set("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum"), _CHECKSUM
    ),
    **dict.fromkeys(word_set("grep egrep fgrep"), _GREP),
    **dict.fromkeys(word_set("cut paste"), Reader(values="d")),
    "wc": Reader(refused=("", "files0-from")),
    "sort": Reader(refused=("T", "files0-from temporary-directory"), values="t"),
    "du": Reader(refused=("LDX", "dereference dereference-args exclude-from files0-from")),
    "diff": Reader(refused=("rX", "recursive exclude-from from-file to-file")),
    "file": Reader(refused=("fmMzZ", "files-from magic-file uncompress")),
    "strings": Reader(inside=r"\A@"),
    "tree": Reader(refused=("lR", "fromfile fromtabfile")),
    "rg": Reader(
        1,
        ("ef", "regexp file files type-list"),
        ("fLz", "file follow ignore-file search-zip"),
        "ABCEMTegjmrtd",
    ),
    "sed": Reader(1, ("ef", "expression file"), values="el"),
    "awk": Reader(1, values="Fv", inside=r"getline|ARGV"),
    "jq": Reader(
        1,
        refused=("fL", "from-file slurpfile rawfile argfile"),
        inside=r"\b(?:import|include|modulemeta)\b",
    ),
    "find": Reader(inside=r"\A(?:-L|-follow|-files0-from)\Z"),
    "fd": Reader(1, refused=("LC", "follow search-path base-directory"), values="eEtdSocj"),
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
PLAIN_PROGRAMS = {*_READERS, *_NO_FILE_PROGRAMS} | word_set(
    "fdfind gawk mawk test [ mkdir touch cp mv rm rmdir ln chmod tee cd set break continue return exit shift"
    " wait"
)
"""Programs that run nothing but what their risky words name, whatever the folder."""


def _find_reader(program: str) -> Reader | None:
    return _READERS.get(ALIKE.get(program, program))


def is_plain_reader(command: SimpleCommand) -> bool:
    """True if the program only reads, and no word writes, executes or hides what is read."""
    name = command.words[0].text
    if command.words[0].kind != "literal" or command.inner:
        return False
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
    return option_value(word.text, Risk(*reader.refused, reader.values)) is not None


def read_words(command: SimpleCommand, reader: Reader | None) -> Iterator[Word]:
    """All words of a reader that may name files."""
    words = command.words
    if reader is None:
        yield from (word for word in words[1:] if word.kind == "pattern")  # the shell expands them
        return
    # In doubt an option replaces the pattern, so that more words count as files.
    options = (word.text for word in words if word.is_option)
    spares = any(option_value(text, Risk(*reader.spares)) is not None for text in options)
    patterns = 0 if spares else reader.patterns
    is_value = options_over = False
    for word in words[1:]:
        if is_value and patterns:
            is_value = False
            if word.kind != "literal":
                yield word
        elif word.text == "--" and not options_over:
            options_over = True
        elif word.is_option and not options_over:
            is_value = option_value(word.text, Risk(reader.values)) == ""
            yield from _option_path(word.text, reader)
        elif patterns:
            patterns -= 1
            if word.kind == "pattern":
                yield word
        else:
            yield word


def _option_path(text: str, reader: Reader) -> Iterator[Word]:
    """A value attached to an option that may be a path."""
    if text.startswith("--"):
        found = re.search(r"=(.*)", text, re.DOTALL)
    else:
        found = re.match(rf"-[^\0{reader.values}]+?([/~.].*)", text, re.DOTALL)
    if found:
        yield Word(found[1])


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


_MAX_GLOB_FILES, _MAX_FOLDERS = 1_000, 100
"""A glob pattern that matches more asks, and so does a line that may run in more folders."""


class CommandLine:
    """A command line that is decided, and all that its parts are decided by."""

    def __init__(
        self, reading: ShellReading, rules: RuleSet, workspace: Path, guard: ExecutionContext, tool: str = RUN
    ) -> None:
        self.reading = reading
        self.rules = rules
        self.workspace = workspace
        self.guard = guard
        self.tool = tool
        self.folders = _working_folders(reading, workspace)
        """Every folder in which a command of it may run; empty if that is unknown."""

    def paths_of(self, word: Word) -> list[str] | None:
        """The paths a word names in every folder where the line may run; None if unknown."""
        if word.kind == "unknown" or not self.folders or "\0" in word.text:
            return None
        per_folder = [_named_paths(word, folder) for folder in self.folders]
        return None if None in per_folder else list(dict.fromkeys(chain(*filter(None, per_folder))))


def _working_folders(reading: ShellReading, workspace: Path) -> list[Path]:
    folders = [workspace]
    for command in reading.all_commands:
        name = command.words[0].text
        if name in ("pushd", "popd") or (name == "cd" and reading.not_literal):
            return []
        if name != "cd":
            continue
        words = [word for word in command.words[1:] if word.text not in ("--", "-P", "-L")]
        if len(words) != 1 or words[0].text == "-" or len(folders) > _MAX_FOLDERS:
            return []
        text = words[0].text
        if words[0].kind == "pattern" and re.fullmatch(r"~(?:/[^*?\[{~]*)?", text):
            text = f"{Path.home()}{text[1:]}"
        elif words[0].kind != "literal":
            return []
        # An earlier `cd` may have failed. bash resolves `link/..` by the text, or with `-P` by the link.
        targets = [base / text for base in folders]
        plain = (Path(os.path.normpath(each)) for each in targets)
        folders = list(dict.fromkeys((*folders, *targets, *plain)))
    return folders


class ReadOnlyPolicy:
    """The decisions about those commands of one line that only read."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._rules, self._workspace, self._folders = line.rules, line.workspace, line.folders

    def parts(self, command: SimpleCommand) -> list[Decision]:
        """One decision for each file it reads; none if it may do more than read."""
        if command.inner:
            inner = [self.parts(each) for each in command.inner] if command.transparent else []
            return [part for parts in inner for part in parts] if all(inner) else []
        name = command.words[0].text
        if name == "git":
            root = self._workspace.resolve()
            is_ours = self._folders and all(each.resolve().is_relative_to(root) for each in self._folders)
            reads = self._line.guard.trusted and is_ours and git_reads(command.words)
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
                if not (is_git or decided.by or self._line.guard.sandbox) and (
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
        if command.words[0].text == "git" and not self._line.guard.trusted and git_reads(command.words):
            return ": the project's settings can make git run programs, and the project is not trusted"
        return ""

    def _paths_of(self, word: Word) -> list[str] | None:
        """As `CommandLine.paths_of`, but one path for each folder if no rule is about single files."""
        paths = self._line.paths_of(word)
        has_file_rules = any(rule.tool == READ for rule in (*self._rules.deny, *self._rules.ask))
        return paths if paths is None or has_file_rules else list(_one_per_folder(paths))


def _named_paths(word: Word, folder: Path) -> list[str] | None:
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
