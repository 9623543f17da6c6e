"""Finds the command inside a command: `env X=1 git log`, `timeout 5 pytest`, `xargs wc`, `bash -c '...'`."""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import UNKNOWN, SimpleCommand, Word, word_set

ReadScript = Callable[[str], tuple[SimpleCommand, ...]]
Fail = Callable[[str], None]

HARMLESS_ASSIGNMENT = re.compile(
    r"(?:LANG|LANGUAGE|LC_\w+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|CI|NODE_ENV"
    r"|DEBIAN_FRONTEND|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER)"
    r"|RUST_(?:BACKTRACE|LOG)|GIT_(?:TERMINAL_PROMPT|OPTIONAL_LOCKS)|CARGO_TERM_COLOR|GO(?:OS|ARCH|MAXPROCS))"
    r"=[\w.,:@%+-]*|(?:GIT_)?PAGER=cat",
    re.ASCII,
)
"""Variables that change no program into another."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=")
_SHELL_FLAGS = re.compile(r"-[eulx]+")
_SHELL_SCRIPT = re.compile(r"-[eulx]*c")
SHELLS = frozenset(("sh", "bash", "dash"))


class _Wrapper(Data, frozen=True):
    """The options of a program that runs the words after them. Any other option: it is not unwrapped."""

    flags: str = ""
    """Separated by spaces."""
    valued: str = ""
    """Options with a value: the next word, or what is glued on."""
    positional: int = 0
    """Words between the options and the command (the duration of timeout)."""
    transparent: bool = True
    """False: a rule has to spell this program too."""


_WRAPPERS: dict[tuple[str, ...], _Wrapper] = {
    ("env",): _Wrapper(),  # without a PATH, bash also searches the current folder
    ("command",): _Wrapper("-p"),
    ("builtin",): _Wrapper(),
    ("nohup",): _Wrapper(),
    ("setsid",): _Wrapper("-f -w --fork --wait"),
    ("time",): _Wrapper("-p"),
    ("timeout",): _Wrapper(
        "--foreground --preserve-status -v --verbose", "-s --signal -k --kill-after", positional=1
    ),
    ("nice",): _Wrapper(valued="-n --adjustment"),
    ("ionice",): _Wrapper("-t", "-c -n --class --classdata"),
    ("stdbuf",): _Wrapper(valued="-i -o -e --input --output --error"),
    ("xargs",): _Wrapper(
        "-0 --null -r --no-run-if-empty -t --verbose -x --exit",
        "-n --max-args -L --max-lines -P --max-procs -s --max-chars -d --delimiter -I",
    ),
    ("sudo",): _Wrapper("-n -E -H -S", "-u --user -g --group", transparent=False),
    ("doas",): _Wrapper("-n", "-u", transparent=False),
    ("npx",): _Wrapper("-y --yes", transparent=False),
    ("npm", "exec"): _Wrapper("-y --yes", transparent=False),
    **{
        words: _Wrapper(transparent=False)
        for words in (
            *(("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("hatch", "run")),
            *(("rye", "run"), ("bunx",), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "exec")),
            *(("yarn", "dlx"), ("bundle", "exec")),
        )
    },
}

RUNNERS = frozenset(words[0] for words in _WRAPPERS if len(words) == 1) | word_set(
    "exec eval sh bash dash ash zsh ksh fish su ssh watch parallel strace ltrace script flock unshare nsenter"
    " chroot systemd-run run0 pkexec setpriv firejail bwrap at batch entr hyperfine busybox toybox caffeinate"
    " gdb taskset chrt setarch runuser prlimit choom sg tmux screen unbuffer rlwrap proxychains proxychains4"
    " torsocks torify faketime dbus-run-session dbus-launch xvfb-run openvt xterm numactl cpulimit perf"
    " valgrind rr heaptrack chronic ts sem ssh-agent runcon start-stop-daemon daemonize capsh ld.so"
    " eatmydata fakeroot proot systemd-inhibit systemd-cat cgexec chpst setuidgid softlimit dumb-init tini"
    " gosu su-exec nix-shell nsjail"
)
"""Programs that run words they are given."""
RUNNING_SUBCOMMANDS = {words for words in _WRAPPERS if len(words) == 2} | {
    *(("docker", "run"), ("docker", "exec"), ("podman", "run"), ("podman", "exec"), ("kubectl", "exec")),
    *(("kubectl", "run"), ("npm", "x"), ("deno", "eval"), ("deno", "run"), ("bun", "x"), ("bun", "run")),
    *(("bun", "exec"), ("pipx", "run"), ("uvx",), ("conda", "run"), ("uv", "tool"), ("nix", "run")),
    *(("nix", "shell"), ("nix", "develop"), ("go", "run"), ("cargo", "install"), ("go", "install")),
    *(("direnv", "exec"), ("mise", "exec"), ("mise", "x"), ("rtx", "x"), ("asdf", "exec"), ("rbenv", "exec")),
    *(("pyenv", "exec"), ("fnm", "exec"), ("volta", "run")),
}


_HARMLESS_GLOBALS = word_set("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects")


def harmless_globals(words: Sequence[str]) -> int:
    """How many options follow `git` that change nothing: a rule need not spell them."""
    options = takewhile(_HARMLESS_GLOBALS.__contains__, words[1:]) if words and words[0] == "git" else ()
    return len(list(options))


def unwrap(command: SimpleCommand, read_script: ReadScript, fail: Fail) -> SimpleCommand:
    """`command` with what it would run in turn, if that can be read; else as it is.

    `fail` is told why the line is not literal.
    """
    texts = [word.text for word in command.words]
    if dropped := harmless_globals(texts):
        return SimpleCommand((command.words[0], *command.words[1 + dropped :]))
    if texts[0] == "command" and len(texts) > 2 and texts[1] in ("-v", "-V"):  # it runs nothing
        return SimpleCommand((Word("type"), *command.words[2:]))
    if command.program in SHELLS:
        script = _script(command.words)
        if script is None:
            # An option after `-c` would move its script.
            if any(word.kind != "literal" or re.match(r"[-+].*c", word.text) for word in command.words):
                fail(f"what {command.program} runs cannot be read")
            return command
        return SimpleCommand(command.words, read_script(script), transparent=True)
    found = _find(command.words)
    if found is None:
        return command
    names, wrapper = found
    start = _after_options(command.words, len(names), wrapper)
    if start is None:
        if command.program == "time":  # bash reads the words after it in its own way
            fail("what time runs cannot be read")
        return command
    while (
        command.program in ("env", "time")
        and start < len(command.words)
        and (assignment := _ASSIGNMENT.match(command.words[start].text))
    ):
        if not HARMLESS_ASSIGNMENT.fullmatch(command.words[start].text):
            fail(f"setting {assignment[0][:-1]} can change what is executed")
        start += 1
    words = command.words[start:]
    if not words:
        return command
    if command.program == "xargs":
        words = _with_input(words, command.words[1:start])
    inner = unwrap(SimpleCommand(words), read_script, fail)
    return SimpleCommand(command.words, (inner,), start, wrapper.transparent)


def _find(words: Sequence[Word]) -> tuple[tuple[str, ...], _Wrapper] | None:
    program = words[0].text.rpartition("/")[2]
    second = words[1].text if len(words) > 1 and words[1].kind == "literal" else ""
    for names in ((program, second), (program,)):
        if names in _WRAPPERS:
            return names, _WRAPPERS[names]
    return None


def _after_options(words: Sequence[Word], index: int, wrapper: _Wrapper) -> int | None:
    """Where the inner command begins, after options from `index` on; None if unknown."""
    flags, valued = wrapper.flags.split(), wrapper.valued.split()
    while index < len(words) and words[index].text.startswith("-"):
        text = words[index].text
        if words[index].kind != "literal":
            return None
        if text == "--" or (text == "-" and words[0].text not in ("env", "time")):
            index += text == "--"
            break
        name, equals, _ = text.partition("=")
        if text in flags:
            index += 1
        elif text in valued:
            index += 2
        elif (equals and name.startswith("--") and name in valued) or (
            not text.startswith("--") and text[:2] in valued
        ):
            index += 1
        else:
            return None
    index += wrapper.positional
    if index > len(words) or any(word.kind != "literal" for word in words[:index]):
        return None
    return index


def _with_input(words: tuple[Word, ...], options: Sequence[Word]) -> tuple[Word, ...]:
    """The words of xargs' command with what it reads put in."""
    place = ""
    for index, option in enumerate(options):
        if option.text.startswith("-I"):
            place = option.text[2:] or (options[index + 1].text if index + 1 < len(options) else "")
    if not place:
        return (*words, UNKNOWN)
    return tuple(
        Word(word.text, "unknown", word.text.partition(place)[0]) if place in word.text else word
        for word in words
    )


def _script(words: Sequence[Word]) -> str | None:
    """What `sh -c` would run, where it is spelled out."""
    index = 1
    while index < len(words) and words[index].kind == "literal":
        text = words[index].text
        if _SHELL_SCRIPT.fullmatch(text):
            script = words[index + 1] if index + 1 < len(words) else UNKNOWN
            plain = script.kind == "literal" and not script.text.startswith(("-", "+"))
            return script.text if plain else None
        if text == "-o" and index + 1 < len(words) and words[index + 1].text == "pipefail":
            index += 2
        elif _SHELL_FLAGS.fullmatch(text) or text in ("--login", "--norc", "--noprofile", "--posix"):
            index += 1
        else:
            return None
    return None
