"""The app's command table. It feeds the palette, slash commands, keys and their settings, help and docs.

Below the settings, because `keys.<action>` is a setting of every command. What a command does is in
`tui/actions`.
"""

from crushpy.core.messages import Data


class AppCommand(Data, frozen=True):
    """One thing a user can do. `action` names the function of `tui/actions` that does it."""

    title: str
    action: str
    help: str
    slash: str = ""
    """Without the slash; empty where it makes no sense to type it."""
    argument: str = ""
    """What may follow it, as a hint: [focus words]."""
    key: str = ""
    """Textual's name of a key, changed by `keys.<action>` in the settings."""
    aliases: tuple[str, ...] = ()
    """Other names for `slash`, for hands that know them from elsewhere."""

    @property
    def slashes(self) -> tuple[str, ...]:
        """Everything that may be typed for it, without the slash."""
        return (self.slash, *self.aliases) if self.slash else ()


APP_COMMANDS: tuple[AppCommand, ...] = (
    AppCommand(
        "Select Compaction Method",
        "select_compaction",
        "Who decides when to start afresh: crushpy (auto) or the model (llm).",
        "compaction",
        "[auto|llm]",
        "ctrl+t",
    ),
    AppCommand(
        "Compact Now", "compact", "Start afresh now; shows the summary first.", "compact", "[focus words]"
    ),
    AppCommand("Hand Off", "handoff", "Start afresh with a summary of your own.", "handoff", "TEXT"),
    AppCommand(
        "Pin",
        "pin",
        "Have every fresh start carry words or a file as they are.",
        "pin",
        "TEXT|@FILE",
    ),
    AppCommand("Pins", "pins", "What is pinned, and unpinning it.", "pins"),
    AppCommand(
        "Edit Summary Template",
        "edit_template",
        "Change what a summary is made of; holds from the next fresh start on.",
        "template",
    ),
    AppCommand(
        "New Session",
        "new_conversation",
        "Begin a new conversation.",
        "new",
        key="ctrl+n",
        aliases=("clear",),
    ),
    AppCommand(
        "Sessions",
        "sessions",
        "Resume, rename, search and delete conversations.",
        "sessions",
        key="ctrl+r",
        aliases=("resume",),
    ),
    AppCommand(
        "Lineage",
        "lineage",
        "The tree of this conversation's sessions and branches.",
        "lineage",
        key="ctrl+l",
    ),
    AppCommand(
        "Undo Changes",
        "undo_files",
        "Take back what the last turn did to files; shows the diff first.",
        "undo",
        "[FILE|all]",
    ),
    AppCommand(
        "Redo Changes", "redo_files", "Make changes again that were taken back.", "redo", "[FILE|all]"
    ),
    AppCommand("Rewind", "rewind", "Go back to one of your prompts: conversation, files or both.", "rewind"),
    AppCommand("Undo Fresh Start", "undo_boundary", "Take the last fresh start back.", "undo-boundary"),
    AppCommand(
        "Search",
        "search",
        "Find what was said or done, also before fresh starts.",
        "search",
        "[words]",
        "ctrl+f",
    ),
    AppCommand("Context Inspector", "inspect", "What fills the model's window.", "context", key="ctrl+o"),
    AppCommand(
        "Cost",
        "show_cost",
        "Tokens and money: this conversation, what lies ahead, and the last days.",
        "cost",
        "[days]",
    ),
    AppCommand(
        "Switch Model",
        "switch_model",
        "Talk to another model from the next request on.",
        "model",
        "[name [always]]",
    ),
    AppCommand(
        "Thinking Effort",
        "effort",
        "How long the model thinks, where it can.",
        "effort",
        "[default|low|medium|high]",
    ),
    AppCommand(
        "Mode",
        "switch_mode",
        "Go round the modes: ask, edits allowed, plan.",
        "mode",
        "[ask|edits|plan]",
        "shift+tab",
    ),
    AppCommand("Toggle Yolo", "toggle_yolo", "Allow everything that is not denied, or ask again.", "yolo"),
    AppCommand("Theme", "theme", "Change the colours.", "theme", "[name]"),
    AppCommand("Export", "export", "Write this conversation to a Markdown file.", "export", "[file]"),
    AppCommand("Copy Last Reply", "copy_reply", "Put the last reply on the clipboard.", "copy", key="f9"),
    AppCommand("Todos", "todos", "Open or fold what the agent has to do.", "todos", key="f8"),
    AppCommand("Fold or Unfold All", "fold_all", "Open or close thinking and tool output.", "fold", key="f6"),
    AppCommand(
        "Connect a Model",
        "connect",
        "What to set for each provider, and whether it works.",
        "connect",
        "[provider]",
    ),
    AppCommand(
        "Trust This Project", "trust", "Let this project bring its own settings and templates.", "trust"
    ),
    AppCommand("Status", "status", "Model, folder, context, mode, sandbox and jobs at a glance.", "status"),
    AppCommand("Settings", "config", "What was chosen and where; sets a value.", "config", "[key [value]]"),
    AppCommand("Permissions", "permissions", "The rules in force, and what was granted here.", "permissions"),
    AppCommand("Jobs", "jobs", "What runs in the background, with its last lines.", "jobs"),
    AppCommand("Changes", "diff", "What this conversation changed in files.", "diff"),
    AppCommand("Review", "review", "Have the agent look over those changes.", "review", "[focus words]"),
    AppCommand("Write AGENTS.md", "init", "Have the agent write it from a look at the project.", "init"),
    AppCommand("Redraw", "redraw", "Draw the screen anew, should something have written over it.", key="f5"),
    AppCommand("Words", "glossary", "What fresh start, evidence and the other words mean.", "glossary"),
    AppCommand("Help", "help", "Keys and commands.", "help", key="f1"),
    AppCommand(
        "Quit", "quit", "Leave; the conversation can be resumed.", "quit", key="ctrl+q", aliases=("exit",)
    ),
)


def by_slash(name: str) -> AppCommand | None:
    return next((command for command in APP_COMMANDS if name in command.slashes), None)
