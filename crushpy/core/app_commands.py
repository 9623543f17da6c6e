"""The app's command table: the source of the palette, slash commands, keys, help and docs.

It is below the settings, because `keys.<action>` is a setting of every command. The actions are in
`tui/actions`.
"""

from collections.abc import Sequence

from crushpy.core.messages import Data


class CommandValue(Data, frozen=True):
    """One of the values that a command sets."""

    value: str
    """As it is stored."""
    title: str
    """Typed in lower case."""
    help: str = ""


MODE_VALUES = (
    CommandValue("ask", "Ask", "asks before changes"),
    CommandValue("edits", "Edits", "edits files in the folder without asking"),
    CommandValue("plan", "Plan", "only reads, and plans"),
)
METHODS = (CommandValue("auto", "Auto", "crushpy decides"), CommandValue("llm", "LLM", "the model decides"))
EFFORTS = tuple(
    CommandValue(effort, effort.capitalize() or "Default") for effort in ("", "low", "medium", "high")
)


def next_value(values: Sequence[CommandValue], current: str) -> str:
    """The value after the current one, or the first one."""
    stored = [value.value for value in values]
    return stored[(stored.index(current) + 1) % len(stored)]


class AppCommand(Data, frozen=True):
    """One thing a user can do. `action` names the method in `tui/actions` that does it."""

    title: str
    action: str
    help: str
    slash: str = ""
    """Without the slash; empty if it cannot be typed."""
    takes: str = ""
    """What follows it, as a hint; in brackets if it may be left out: [focus words]."""
    key: str = ""
    """Textual's name of a key, changed by `keys.<action>` in the settings."""
    aliases: tuple[str, ...] = ()
    """Other names for `slash`, known from other agents."""
    in_editor: bool = False
    """Whether `crushpy acp` offers it in an editor's thread also. Its help must be true there as well."""
    values: tuple[CommandValue, ...] = ()
    """What it sets, if that is one of a few values."""

    @property
    def argument(self) -> str:
        """What follows it: `takes`, or one of the values."""
        names = "|".join(value.title.lower() for value in self.values)
        return f"[{names}]" if names else self.takes

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def slashes(self) -> tuple[str, ...]:
        """Everything that may be typed for it, without the slash."""
        return (self.slash, *self.aliases) if self.slash else ()


COMMAND_GROUPS: dict[str, tuple[AppCommand, ...]] = {
    "Context": (
        AppCommand(
            "Context Inspector",
            "inspect",
            "What fills the window; edits it.",
            "context",
            "[drop|shorten|restore ID]",
            "ctrl+o",
            in_editor=True,
        ),
        AppCommand(
            "Compact Now", "compact", "Compact the context now.", "compact", "[focus words]", in_editor=True
        ),
        AppCommand(
            "Select Compaction Method",
            "select_compaction",
            "Who decides when to compact: crushpy or the model.",
            "compaction",
            key="ctrl+t",
            values=METHODS,
        ),
        AppCommand(
            "Undo Compaction",
            "undo_compaction",
            "Undo the last compaction.",
            "undo-compaction",
            in_editor=True,
        ),
        AppCommand(
            "Pin", "pin", "Keep a text or file in every compaction.", "pin", "TEXT|@FILE", in_editor=True
        ),
        AppCommand("Pins", "pins", "Texts and files that every compaction keeps.", "pins", in_editor=True),
        AppCommand(
            "Standing Rules", "rules", "The standing rules; TEXT adds one.", "rules", "[TEXT]", in_editor=True
        ),
        AppCommand("End Rule", "end_rule", "End the rule that the last notice names.", key="f7"),
        AppCommand(
            "Side Question", "ask_aside", "Ask about the context; adds nothing to it.", "btw", "QUESTION"
        ),
        AppCommand(
            "Hand Off", "handoff", "Continue in a new session with your own summary.", "handoff", "TEXT"
        ),
        AppCommand(
            "Edit Summary Template", "edit_template", "Edit the sections of later summaries.", "template"
        ),
    ),
    "Session": (
        AppCommand(
            "New Session", "new_conversation", "Begin a new conversation.", "new", "", "ctrl+n", ("clear",)
        ),
        AppCommand(
            "Sessions",
            "sessions",
            "Resume, rename, search and delete.",
            "sessions",
            "",
            "ctrl+r",
            ("resume",),
        ),
        AppCommand(
            "Resume Last",
            "resume_last",
            "Resume the latest conversation of this folder.",
            "continue",
            key="f2",
        ),
        AppCommand("Rewind", "rewind", "Go back to a prompt: conversation, files or both.", "rewind"),
        AppCommand(
            "Session Tree", "tree", "All sessions of this conversation.", "tree", "", "ctrl+l", in_editor=True
        ),
        AppCommand("Search", "search", "Search all messages.", "search", "[words]", "ctrl+f", in_editor=True),
        AppCommand(
            "Branch", "branch", "Work aside; only the result returns.", "branch", "GOAL", in_editor=True
        ),
        AppCommand(
            "Return",
            "return_to_parent",
            "End the branch with its result.",
            "return",
            "[TEXT]",
            in_editor=True,
        ),
        AppCommand("Queue", "queue", "Send a prompt after the running turn.", "queue", "TEXT"),
        AppCommand(
            "Export", "export", "Write this conversation to a Markdown or HTML file.", "export", "[file]"
        ),
        AppCommand("Copy Last Reply", "copy_reply", "Put the last reply on the clipboard.", "copy", key="f9"),
        AppCommand("Cost", "show_cost", "Tokens and money: here, forecast and past days.", "cost", "[days]"),
        AppCommand(
            "Budget", "budget", "What may be spent; sets it.", "budget", "[5usd|200k|0]", in_editor=True
        ),
        AppCommand("Quit", "quit", "Quit; the conversation can be resumed.", "quit", "", "ctrl+q", ("exit",)),
    ),
    "Files": (
        AppCommand("Undo Changes", "undo_files", "Undo the last turn's file changes.", "undo", "[FILE|all]"),
        AppCommand("Redo Changes", "redo_files", "Redo undone changes.", "redo", "[FILE|all]"),
        AppCommand("Changes", "diff", "File changes of this conversation.", "diff"),
        AppCommand("Review", "review", "Ask the agent to review those changes.", "review", "[focus words]"),
        AppCommand(
            "Write AGENTS.md", "init", "Ask the agent to write it from a look at the project.", "init"
        ),
        AppCommand("Jobs", "jobs", "Watch and stop background commands.", "jobs"),
        AppCommand("Add Folder", "add_dir", "Work in a second folder as well.", "add-dir", "[DIR]"),
        AppCommand("Memory", "memory", "Rules files that the model has read.", "memory"),
        AppCommand("Permissions", "permissions", "The rules in force, and grants made here.", "permissions"),
        AppCommand(
            "Trust This Project", "trust", "Use the settings and extensions of this project.", "trust"
        ),
    ),
    "Model": (
        AppCommand(
            "Switch Model", "switch_model", "Use another model from now on.", "model", "[name [always]]"
        ),
        AppCommand(
            "Thinking Effort", "effort", "How long the model thinks, if it can.", "effort", values=EFFORTS
        ),
        AppCommand("Mode", "switch_mode", "Switch the mode.", "mode", key="shift+tab", values=MODE_VALUES),
        AppCommand(
            "Toggle Yolo", "toggle_yolo", "Allow everything that is not denied, or ask again.", "yolo"
        ),
        AppCommand("Connect a Model", "connect", "Set up a provider and test it.", "connect", "[provider]"),
        AppCommand("MCP Servers", "mcp", "State, tools, log and restart of MCP servers.", "mcp", "[server]"),
        AppCommand("Language Servers", "lsp", "Language servers: state, memory and log.", "lsp"),
        AppCommand("Skills", "skills", "Skills and commands found, and their problems.", "skills"),
        AppCommand("Sub-agents", "agents", "Definitions of sub-agents, and their problems.", "agents"),
        AppCommand("Hooks", "hooks", "The configured hooks and their last runs.", "hooks"),
    ),
    "View": (
        AppCommand("Theme", "theme", "Change the colours.", "theme", "[name]"),
        AppCommand("Todos", "todos", "Open or fold the agent's todos.", "todos", key="f8"),
        AppCommand(
            "Fold or Unfold All", "fold_all", "Open or close thinking and tool output.", "fold", key="f6"
        ),
        AppCommand(
            "Side Panel", "side", "Show or hide what is beside a wide transcript.", "side", key="ctrl+b"
        ),
        AppCommand("Vim Keys", "vim", "Edit the prompt with the keys of vim, or as usual.", "vim"),
        AppCommand("Status", "status", "Model, context, sandbox, mode, rules and cost.", "status"),
        AppCommand("Warnings", "warnings", "What was wrong at the start.", "warnings", key="f3"),
        AppCommand(
            "Settings", "config", "Settings and their sources; sets a value.", "config", "[key [value]]"
        ),
        AppCommand("Redraw", "redraw", "Redraw the screen.", key="f5"),
        AppCommand("Glossary", "glossary", "What compaction, evidence and the other terms mean.", "glossary"),
        AppCommand("Help", "help", "Keys and commands.", "help", key="f1"),
    ),
}
"""The commands as the palette groups them; earlier ones come first in the menu of slash commands."""
APP_COMMANDS = tuple(command for group in COMMAND_GROUPS.values() for command in group)

BY_ACTION = {command.action: command for command in APP_COMMANDS}
FORMER_NAMES = {"undo-boundary": "undo-compaction", "lineage": "tree", "recall": "search"}
"""Slash commands that were called differently: errors name the new one. `keys` has them with underscores."""


def by_slash(name: str) -> AppCommand | None:
    return next((command for command in APP_COMMANDS if name in command.slashes), None)
