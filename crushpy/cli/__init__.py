"""The command line. Only the module of the given command is imported, to keep start-up fast."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crushpy.tui.terminal.early_terminal import EarlyTerminal

NO_WINDOWS = "crushpy does not run on Windows itself. Install it in WSL 2: https://aka.ms/wsl"


def main() -> None:
    """Entry point of the `crushpy` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from crushpy import __version__

        print(f"crushpy {__version__}")
        return
    if sys.platform == "win32":
        print(NO_WINDOWS, file=sys.stderr)
        if sys.argv[1:2] != ["doctor"]:
            sys.exit(2)
    from crushpy.cli.exits import report_errors

    with report_errors():
        if "_CRUSHPY_COMPLETE" in os.environ:
            from crushpy.cli.app import complete

            complete(os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", ""))
            return
        if sys.argv[1:] == ["acp"]:  # an editor waits for the first answer
            from crushpy.cli.acp import acp_command

            acp_command()
            return
        if sys.argv[1:] in ([], ["-c"], ["--continue"]) and sys.stdin.isatty() and sys.stdout.isatty():
            from crushpy.tui.terminal.early_terminal import early_terminal

            with early_terminal() as terminal:
                _start(terminal)
        else:
            _start(None)


def _start(terminal: "EarlyTerminal | None") -> None:
    """Runs the command of the arguments. `terminal`: it shows the first picture of the chat already."""
    from crushpy.cli.arguments import normalize_arguments, parse_chat_flags, parse_run_flags

    argv = normalize_arguments(sys.argv[1:])
    options = parse_chat_flags(argv)
    if options is not None:
        from crushpy.cli.chat import start_chat

        sys.exit(start_chat(options, terminal))
    if (run := parse_run_flags(argv)) is not None:
        from crushpy.cli.run import run_command

        run_command(*run)
        return
    from crushpy.cli.app import build

    build(argv)(argv, prog_name="crushpy")
