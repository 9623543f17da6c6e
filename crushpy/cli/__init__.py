"""The commands a person types. Only the module of the command in hand is imported: start-up is felt."""

import sys


def main() -> None:
    """Entry point of the `crushpy` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from crushpy import __version__

        print(f"crushpy {__version__}")
        return
    from crushpy.cli.exits import reporting_errors

    with reporting_errors():
        from crushpy.cli.other_forms import usual_form
        from crushpy.cli.start_flags import read_plainly

        argv = usual_form(sys.argv[1:])
        options = read_plainly(argv)
        if options is not None:
            from crushpy.cli.chat import start

            sys.exit(start(options))
        from crushpy.cli.app import build

        build(argv)(argv, prog_name="crushpy")
