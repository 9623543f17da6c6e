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
from crushpy.permissions.decision import Decision, ExecutionContext, by_rule, decide_path
from crushpy.permissions.git_commands import git_reads
from crushpy.permissions.options import Argument, read_arguments
from crushpy.permissions.path_rules import MAX_SEARCHED_FILES, is_forbidden_below, secret_places_in
from crushpy.permissions.program_table import Program, facts, option_names
from crushpy.permissions.risky_words import risky_words
from crushpy.permissions.rules import READ, RUN, RuleSet
from crushpy.permissions.shell.ast import ShellReading, SimpleCommand, Word, with_inner, word_set
from crushpy.security.safe_git import git_output

_SHOWS_HIDDEN = re.compile(r"-\w*[u.]|--(?:hid|unr)")
_GIT_PRINTS = word_set(
    "grep diff show blame annotate archive cat-file format-patch whatchanged -p -u --patch"
)
"""Subcommands and options with which git prints or copies contents."""


def is_plain_reader(command: SimpleCommand) -> bool:
    """True if the program only reads, and no word writes, executes or hides what is read."""
    name, row = command.words[0], facts(command.words[0].text)
    if not row.reads or name.kind != "literal" or command.inner or risky_words(command):
        return False
    return not any(_reads_elsewhere(argument, row) for argument in read_arguments(command.words, row))


def _reads_elsewhere(argument: Argument, row: Program) -> bool:
    word = argument.word
    if argument.has(row.elsewhere) or (row.unread and re.search(row.unread, word.text)):
        return True
    return row.reads != "nothing" and word.kind == "unknown" and argument.is_option


def _read_words(command: SimpleCommand, row: Program) -> Iterator[Word]:
    """All words of a program that may name files it reads."""
    if row.reads == "nothing":
        yield from (word for word in command.words[1:] if word.kind == "pattern")  # the shell expands them
        return
    arguments = list(read_arguments(command.words, row))
    # In doubt an option replaces the pattern, so that more words count as files.
    is_pattern = row.pattern and not any(argument.has(f"{row.script} {row.inputs}") for argument in arguments)
    for argument in arguments:
        word = argument.word
        if argument.is_operand and is_pattern:
            is_pattern = False
            yield from [word] if word.kind == "pattern" else []
        elif argument.names and not argument.is_operand:
            yield from _option_path(word) if argument.names[-1] not in option_names(row.values) else []
        elif not (is_pattern and word.kind == "literal"):
            yield word


def _option_path(word: Word) -> Iterator[Word]:
    """A value attached to an option that may be a path."""
    if found := re.match(r"(?:--[^=]*=|-[^-][^/~.]*(?=[/~.]))(.*)", word.text, re.DOTALL):
        yield Word(found[1])


def _git_paths(word: Word) -> Iterator[Word]:
    """What git may take for a file in a word: `README`, `HEAD:README`, `:(top)README`, `--contents=x`."""
    if word.is_option:
        yield from _option_path(word)
    else:
        yield word if word.kind != "literal" else Word(re.split(r"[:)]", word.text)[-1])


def _files_below(folder: str, *, hidden: bool) -> Iterator[str]:
    """The files below a folder, relative to it. Links are not followed. `hidden`: also names with a dot."""
    for current, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if hidden or not name.startswith(".")]
        prefix = f"{current[len(folder) :].strip('/')}/".lstrip("/")
        yield from (prefix + name for name in names if hidden or not name.startswith("."))


def _tracked_files(folder: str) -> Iterator[str]:
    """The files below a folder that git tracks, relative to it; all of them if git cannot be asked."""
    listed = git_output(Path(folder), "ls-files", "-z")
    if listed is None:
        return _files_below(folder, hidden=True)
    return (os.fsdecode(name) for name in listed.split(b"\0") if name)


_MAX_GLOB_FILES, _MAX_FOLDERS = 1_000, 100
"""A glob pattern that matches more asks, and so does a line that may run in more folders."""


class CommandLine:
    """A command line that is decided, all that its parts are decided by, and the decisions about those of its
    commands that only read."""

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

    def reading_parts(self, command: SimpleCommand) -> list[Decision]:
        """One decision for each file that a command reads; none if it may do more than read."""
        if command.inner:
            inner = [self.reading_parts(each) for each in command.inner] if command.transparent else []
            return [part for parts in inner for part in parts] if all(inner) else []
        name = command.words[0].text
        if name == "git":
            root = self.workspace.resolve()
            is_ours = self.folders and all(each.resolve().is_relative_to(root) for each in self.folders)
            reads = self.guard.trusted and is_ours and git_reads(command.words)
            words = [path for word in command.words[2:] for path in _git_paths(word)]
        else:
            reads = is_plain_reader(command)
            words = list(_read_words(command, facts(name))) if reads else []
        paths = [self._read_paths(word) for word in words]
        if not reads or None in paths or self._is_from_workspace(name):
            return []
        allowed = Decision("allow", f"`{str(command)[:60]}` only reads")
        reading = (Access(READ, "path", path) for path in dict.fromkeys(chain(*filter(None, paths))))
        decided = (decide_path(access, self.rules, self.workspace) for access in reading)
        return [allowed, *(decision for decision in decided if decision.verdict != "allow")]

    def forbidden_reads(self, command: SimpleCommand) -> list[Decision]:
        """What forbids reading the files that a command and those inside it read, whatever allows it.

        Deny and ask rules for `view`, and without a sandbox known locations of secrets. Of a folder, all
        files in it count.
        """
        leaves = (each for each in with_inner(command) if not each.inner)
        return [part for leaf in leaves for part in self._forbidden_to(leaf)]

    def _forbidden_to(self, command: SimpleCommand) -> Iterator[Decision]:
        row, arguments = facts(command.program), list(read_arguments(command.words, facts(command.program)))
        options = [word.text for word in command.words if word.is_option]
        is_git = command.program == "git" and any(word.text in _GIT_PRINTS for word in command.words[1:])
        has_files = row.copies or row.reads == "contents" or (row.reads == "names" and risky_words(command))
        if is_git:
            words = [path for word in command.words[2:] for path in _git_paths(word)]
        elif not has_files or "--files" in options:
            return
        else:
            words = list(_read_words(command, row))
            has_target = any(argument.has("-t --target-directory") for argument in arguments)
            if command.program in ("cp", "rsync", "scp") and not has_target:
                words = words[:-1]
        paths = [path for word in words for path in self._read_paths(word) or ()]
        searches = row.searches and command.stdin != "pipe"
        recurses = any(argument.has(row.recurses) for argument in arguments)
        if not any(map(os.path.lexists, paths)) and (is_git or searches or recurses):
            paths += map(str, self.folders)
        skips_hidden = row.skips_hidden and not any(map(_SHOWS_HIDDEN.match, options))
        for path in dict.fromkeys(paths):
            decided = decide_path(Access(READ, "path", path), self.rules, self.workspace)
            if decided.by == "rule" and decided.verdict != "allow":
                yield decided
            elif os.path.isdir(path):  # noqa: PTH112
                names = _tracked_files(path) if is_git else _files_below(path, hidden=not skips_hidden)
                yield from self._forbidden_in(path, names)
                if not (is_git or decided.by or self.guard.sandbox) and (
                    secrets := secret_places_in(Path(path).resolve())
                ):
                    yield Decision("ask", f"no rule allows reading secrets: {secrets[0]}")

    def _forbidden_in(self, folder: str, found: Iterator[str]) -> Iterator[Decision]:
        rules = [rule for rule in (*self.rules.deny, *self.rules.ask) if rule.tool == READ]
        names = list(islice(found, MAX_SEARCHED_FILES + 1)) if rules else []
        for rule in rules:
            if is_forbidden_below(rule, Path(os.path.realpath(folder)), names, self.workspace):
                decided = by_rule("deny" if rule in self.rules.deny else "ask", rule)
                why = f"{decided.reason}: {folder} contains such files (the grep tool skips them)"
                yield msgspec.structs.replace(decided, reason=why)
                return

    def _is_from_workspace(self, program: str) -> bool:
        """Whether the shell would find a program of the workspace, which may do anything."""
        elements = os.environ.get("PATH", os.defpath).split(os.pathsep)
        for folder in self.folders:
            path = os.pathsep.join(os.path.join(folder, each) for each in elements)  # noqa: PTH118
            found = shutil.which(program, path=path)
            if found and Path(found).parent.resolve().is_relative_to(self.workspace.resolve()):
                return True
        return False

    def held_back(self, command: SimpleCommand) -> str:
        """Why a command that only reads still asks, as the end of a sentence."""
        if command.words[0].text == "git" and not self.guard.trusted and git_reads(command.words):
            return ": the project's settings can make git run programs, and the project is not trusted"
        return ""

    def _read_paths(self, word: Word) -> list[str] | None:
        """As `paths_of`, but one path for each folder if no rule is about single files."""
        paths = self.paths_of(word)
        has_file_rules = any(rule.tool == READ for rule in (*self.rules.deny, *self.rules.ask))
        return paths if paths is None or has_file_rules else list(_one_per_folder(paths))


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
