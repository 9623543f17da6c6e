"""The commands a person types. Only the module of the command in hand is imported: start-up is felt."""

import sys

COMMANDS = {
    "run": "Work on a prompt without the app and print what happens.",
    "sessions": "List, show, search, export, undo and delete what was said and done.",
    "compact": "End a session and go on in a fresh one, or see what that would carry over.",
    "template": "See, change and check what the model is told.",
    "config": "Read and change settings.",
    "models": "List models, their windows and prices.",
    "permissions": "List, test and revoke permission rules.",
    "trust": "Let a project bring its own settings and templates.",
    "untrust": "Take that back.",
    "doctor": "Check the installation and say what is wrong.",
}
"""Each is a module of this package with a function `register(app)`."""


def main() -> None:
    """Entry point of the `crushpy` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from crushpy import __version__

        print(f"crushpy {__version__}")
        return
    from crushpy.cli.chat import plainly_asked, start
    from crushpy.cli.exits import told

    with told():
        asked = plainly_asked(sys.argv[1:])
        if asked is not None:
            sys.exit(start(asked))
        from crushpy.cli.app import build

        build(sys.argv[1:])(sys.argv[1:], prog_name="crushpy")
