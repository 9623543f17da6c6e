"""The command line. Only the module of the given command is imported, to keep start-up fast."""

import sys


def main() -> None:
    """Entry point of the `crushpy` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from crushpy import __version__

        print(f"crushpy {__version__}")
        return
    from crushpy.cli.exits import reporting_errors

    with reporting_errors():
        from crushpy.cli.arguments import read_plainly, usual_form

        argv = usual_form(sys.argv[1:])
        options = read_plainly(argv)
        if options is not None:
            from crushpy.cli.chat import start

            sys.exit(start(options))
        from crushpy.cli.app import build

        build(argv)(argv, prog_name="crushpy")
