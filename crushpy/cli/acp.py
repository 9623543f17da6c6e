"""`crushpy acp`: serves an editor over the Agent Client Protocol."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(app: "typer.Typer") -> None:
    app.command("acp")(acp_command)


def acp_command() -> None:
    """Serve an editor over the Agent Client Protocol, on stdin and stdout."""
    from crushpy.acp.handshake import shake_hands

    opened = shake_hands()  # before the server is imported
    import asyncio

    from crushpy.acp.server import serve

    asyncio.run(serve(*opened))
