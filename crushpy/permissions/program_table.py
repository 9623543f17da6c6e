"""The table of programs: all that crushpy knows about single programs, read from `programs.toml`."""

from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from crushpy.core.messages import Data
from crushpy.util.data_table import read_table

Options = Annotated[str, msgspec.Meta(pattern=r"^(-\S+(\s+|$))*$")]
"""As in a shell, separated by blanks: `-ab` are two letters, `--all` is a long option."""


class Program(Data, frozen=True, forbid_unknown_fields=True):
    """One row: the facts about a program, or about a subcommand."""

    # --- its name, and what it is for people

    same_as: str = ""
    """The program of which this is another name. Such a row has no other facts."""
    versioned: bool = False
    """True if digits may follow the name: `python3.12`."""
    says: str = ""
    """What it does, after its name in a sentence."""
    more: tuple[str, str] = ("", "")
    """A regular expression for words that make it do more, and what that is."""

    # --- how its words are read

    values: Options = ""
    """Options with a value that is not a file."""
    optional: Options = ""
    """Options with a value only if it is attached."""
    inputs: Options = ""
    """Options with a file that it reads."""
    output: Options = ""
    """Options with a file or folder that it writes."""
    script: Options = ""
    """Options that give it its search pattern, script or code, so that no operand does."""
    flags: Options = ""
    """Harmless options without a value. Of a program with scripts or an inner command, others are unknown."""
    ends: bool = False
    """True if the first operand ends the options."""
    bundled: bool = False
    """True if its first word may be letters of options without a dash: `tar xf`."""
    single_dash: bool = False
    """True if its long options have one dash: `-delete` is not six letters."""
    recursive: Options = ""
    """Options that mean `-r`."""

    # --- what it reads and writes

    reads: Literal["", "nothing", "names", "contents", "repository"] = ""
    """What it prints of the files that its operands name, if it only reads, apart from its risky words."""
    copies: bool = False
    """True if it prints or copies the files that its operands name, and may do more than read."""
    pattern: bool = False
    """True if its first operand is a search pattern or a script, not a file."""
    searches: bool = False
    """True if it reads the current folder if its words name none."""
    recurses: Options = ""
    """Options with which it does."""
    skips_hidden: bool = False
    """True if it does not search files whose names begin with a dot."""
    elsewhere: Options = ""
    """Options with which it reads other files than its operands name: links, names in a file."""
    unread: str = ""
    """A regular expression for words with which it reads other files."""
    in_place: Options = ""
    """Options with which it changes the files that it reads. A suffix may be attached."""
    writes: Literal["", "new", "all", "mode", "last", "move"] = ""
    """Which operands it writes. new: all, only if they do not exist; mode: all but the first; move: all, and
    they are moved to the last."""

    # --- what makes it write or execute: a rule covers such words only if it spells them

    risky: Options = ""
    """Options. For `git`: those of all subcommands."""
    safe: str = ""
    """A regular expression for words that are not risky although they look like `risky` options."""
    risky_operands: str = ""
    """A regular expression for whole operands. Those that are not literal count."""
    free_operands: int = 0
    """How many operands are not risky."""
    risky_text: str = ""
    """A regular expression for parts of words."""
    plain: bool = False
    """True if it runs only what its risky words name, whatever the folder. So do programs that only read."""
    runs_risky: bool = False
    """True if its risky words are commands that it runs."""

    # --- programs that run others

    runs: Literal["", "words", "inner", "spelled"] = ""
    """inner: the words after its options are a command, and only that matters; spelled: a rule names both;
    words: any of its words may be a command."""
    before: int = 0
    """How many words are between its options and its inner command (the duration of timeout)."""
    interpreter: bool = False
    """True if it runs a script, its own code, or what it reads."""
    modules: bool = False
    """True if the words after `-m` are those of another program."""
    stdin: str = ""
    """The letter that makes an interpreter read its code, whatever its operands."""
    no_script: str = ""
    """The option with which an interpreter needs no script."""

    # --- which rules are about it

    rule: Literal["", "name", "subcommand"] = ""
    """How much of a command a useful rule names."""
    nested: str = ""
    """Subcommands with subcommands of their own."""
    works_alone: bool = False
    """True if it does its usual job without arguments."""
    operands_matter: bool = False
    """True if its operands are what it changes: a rule that names one covers no other."""
    controls_shell: bool = False
    """True for a builtin that only controls the shell: beside an allowed command it needs no rule."""

    # --- the network

    http: bool = False
    """True if its operands are addresses."""
    network: bool = False
    """True if its protocol does not pass through the proxy."""
    hosts: str = ""
    """The hosts of its packages."""
    connects: str = ""
    """Subcommands that need the network."""

    # --- subcommands of git

    reading_words: tuple[str, ...] = ()
    """Operands after which it only reads; an empty one: without operands."""
    risky_words: tuple[str, ...] = ()
    """Operands after which it writes or executes."""
    keeps_repository: bool = False
    """True if it writes, but not below `.git`."""
    outside: bool = False
    """True if it reads something other than the repository."""

    @property
    def is_plain(self) -> bool:
        return self.plain or bool(self.reads)


def read_programs(chapters: dict[str, dict[str, Program]]) -> dict[str, Program]:
    """The rows by name. Raises ValueError if two are about one program, or one refers to none."""
    rows: dict[str, Program] = {}
    for chapter in chapters.values():
        for names, row in chapter.items():
            for name in names.split(", "):
                if name in rows:
                    raise ValueError(f"two rows are about {name}")
                rows[name] = row
    if unknown := {row.same_as for row in rows.values() if row.same_as} - rows.keys():
        raise ValueError(f"there is no row about {', '.join(sorted(unknown))}")
    return rows


PROGRAMS = read_programs(read_table(__file__, "programs", dict[str, dict[str, Program]]))
_UNKNOWN = Program()


def family(program: str) -> str:
    """The program's usual name: `awk` for `gawk`, `python` for `python3.12`."""
    row = PROGRAMS.get(program)
    if row is None:
        name = program.rstrip("0123456789.")
        return name if PROGRAMS.get(name, _UNKNOWN).versioned else program
    return row.same_as or program


def facts(program: str, subcommand: str | None = None) -> Program:
    """The row of a program, or of its subcommand; an empty one if it is unknown."""
    name = family(program)
    return PROGRAMS.get(name if subcommand is None else f"{name} {subcommand}", _UNKNOWN)


@lru_cache(maxsize=1024)
def option_names(options: str) -> frozenset[str]:
    """Each of the options: `-a`, `-b` and `--all` of `-ab --all`."""
    names: set[str] = set()
    for word in options.split():
        names |= {word} if word.startswith("--") else {f"-{letter}" for letter in word[1:]}
    return frozenset(names)
