"""THE command table: what can be done. It feeds the palette, slash commands, key help and docs."""

from crushpy.messages import Data


class Command(Data, frozen=True):
    """One thing a user can do. `action` is a method `action_<action>(argument)` of the chat screen."""

    title: str
    action: str
    help: str
    slash: str = ""
    """Without the slash; empty where it makes no sense to type it."""
    argument: str = ""
    """What may follow it, as a hint: [focus words]."""
    key: str = ""
    """Textual's name of a key, changed by `keys.<action>` in the settings."""


COMMANDS: tuple[Command, ...] = (
    Command(
        "Select Compaction Method",
        "select_compaction",
        "Who decides when to start afresh: crushpy (auto) or the model (llm).",
        "compaction",
        "[auto|llm]",
        "ctrl+t",
    ),
    Command(
        "Compact Now", "compact", "Start afresh now; shows the summary first.", "compact", "[focus words]"
    ),
    Command("Hand Off", "handoff", "Start afresh with a summary of your own.", "handoff", "TEXT"),
    Command(
        "Edit Summary Template",
        "edit_template",
        "Change what a summary is made of; holds from the next boundary on.",
        "template",
    ),
    Command("New Session", "new_conversation", "Begin a new conversation.", "new", key="ctrl+n"),
    Command(
        "Sessions", "sessions", "Resume, rename, search and delete conversations.", "sessions", key="ctrl+r"
    ),
    Command(
        "Lineage",
        "lineage",
        "The tree of this conversation's sessions and branches.",
        "lineage",
        key="ctrl+l",
    ),
    Command("Undo Boundary", "undo_boundary", "Take the last fresh start back.", "undo"),
    Command(
        "Search",
        "search",
        "Find what was said or done, also before fresh starts.",
        "search",
        "[words]",
        "ctrl+f",
    ),
    Command("Context Inspector", "inspect", "What fills the model's window.", "context", key="ctrl+o"),
    Command(
        "Switch Model", "switch_model", "Talk to another model from the next request on.", "model", "[name]"
    ),
    Command(
        "Thinking Effort",
        "effort",
        "How long the model thinks, where it can.",
        "effort",
        "[default|low|medium|high]",
    ),
    Command("Toggle Yolo", "toggle_yolo", "Allow everything that is not denied, or ask again.", "yolo"),
    Command("Theme", "theme", "Change the colours.", "theme", "[name]"),
    Command("Export", "export", "Write this conversation to a Markdown file.", "export", "[file]"),
    Command("Copy Last Reply", "copy_reply", "Put the last reply on the clipboard.", "copy", key="f9"),
    Command("Fold or Unfold All", "fold_all", "Open or close thinking and tool output.", "fold", key="f6"),
    Command(
        "Connect a Model",
        "connect",
        "What to set for each provider, and whether it works.",
        "connect",
        "[provider]",
    ),
    Command("Trust This Project", "trust", "Let this project bring its own settings and templates.", "trust"),
    Command("Help", "help", "Keys and commands.", "help", key="f1"),
    Command("Quit", "quit", "Leave; the conversation can be resumed.", "quit", key="ctrl+q"),
)


def by_slash(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.slash and command.slash == name), None)
