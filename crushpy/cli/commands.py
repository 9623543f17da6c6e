"""The table of commands: the name of each and one line about it, for people."""

COMMANDS = {
    "run": "Work on a prompt without the app and print what happens.",
    "sessions": "List, show, search, export, undo and delete what was said and done.",
    "compact": "End a session and go on in a fresh one, or see what that would carry over.",
    "template": "See, change and check what the model is told.",
    "config": "Read and change settings.",
    "models": "List models, their windows and prices.",
    "stats": "Show tokens and money by day, model, project and conversation.",
    "connect": "Store a provider's key in the system's keyring.",
    "permissions": "List, test and revoke permission rules.",
    "audit": "Show what was decided and changed, and verify the record of it.",
    "storage": "Copy all conversations to another database.",
    "trust": "Let a project bring its own settings and templates.",
    "untrust": "Take that back.",
    "doctor": "Check the installation and say what is wrong.",
}
"""Each is a module of this package with a function `register(app)`."""
