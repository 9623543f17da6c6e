"""What holds a command back beside the rules: the sandbox around it, and whose project it runs in."""

from crushpy.core.messages import Data


class ExecutionContext(Data, frozen=True):
    """As it is when a call is decided."""

    trusted: bool = False
    """True where the user trusts the project: then its git settings are as good as their own."""
    sandbox: str = ""
    """The sandbox that every command runs in; empty where there is none."""
    auto_allow: bool = True
    """Whether a command that only reads or builds inside the sandbox runs without a question."""
    hosts: tuple[str, ...] = ()
    """Hosts that every command may reach from inside the sandbox; `*` is any."""
    write: tuple[str, ...] = ()
    """Folders outside the workspace that every command may change, as absolute paths."""

    why_not: str = ""
    """Where there is no sandbox: the reason, and the way out."""
