"""Questions of a scripted agent, and waiting for them."""

from driving import Driven
from scripted_llm.replies import Call, Reply

from crushpy.tui.widgets import grace_period
from crushpy.tui.widgets.approval import ApprovalPanel


def bash(command: str, **more: object) -> Reply:
    return Reply(calls=[Call("bash", {"command": command, **more})])


def write(content: str, name: str = "made.sh") -> Reply:
    return Reply(calls=[Call("write", {"file_path": name, "content": content})])


async def armed(app: Driven) -> ApprovalPanel:
    """Returns once the question can be answered."""
    await app.until(
        lambda: app.approval is not None and app.approval.has_class(grace_period.ARMED), "a question"
    )
    await app.pilot.pause()
    assert app.approval is not None
    return app.approval


async def appears(app: Driven) -> ApprovalPanel:
    """Returns once the question is there and has the focus."""
    await app.until(lambda: app.approval is not None and app.approval.has_focus, "the question")
    await app.pilot.pause()
    assert app.approval is not None
    return app.approval
