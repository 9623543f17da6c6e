"""`crushpy acp`: serves an editor over the Agent Client Protocol."""

import typer


def register(app: typer.Typer) -> None:
    app.command("acp")(acp_command)


def acp_command() -> None:
    """Serve an editor over the Agent Client Protocol, on stdin and stdout."""
    from crushpy.acp.server import run_server

    run_server()
