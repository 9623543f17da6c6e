"""A dialog that takes a key: typed or pasted, and never shown."""

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from crushpy.core.errors import CrushpyError
from crushpy.llm.key_store import checked_key
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.widgets.key_bar import KeyBar


class SecretField(Input):
    """One line without echo. A paste is taken as it comes: what is wrong with it is told, not repaired."""

    def __init__(self) -> None:
        super().__init__(placeholder="paste it here; it is not shown", password=True)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(event.text.strip())


class KeyScreen(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns what can be a key, or None."""

    DEFAULT_CSS = """
    KeyScreen { align: center middle; }
    KeyScreen > Vertical {
        width: 80%; max-width: 90; height: auto; max-height: 100%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    KeyScreen Input, KeyScreen Input:focus { border: none; }
    KeyScreen Input { height: 1; margin: 1 0; background: $surface; padding: 0; }
    KeyScreen .problem { color: $error; }
    """
    BINDINGS = [
        Binding("enter", "store", "Store", priority=True),
        Binding("escape", "dismiss(None)", "Cancel"),
    ]

    def __init__(self, provider: str, keyring: str) -> None:
        super().__init__()
        self._provider = provider
        self._keyring = keyring

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(f"Key for {one_line(self._provider)}", "bold"))
            yield SecretField()
            yield Static(
                Content.styled(f"It goes into the keyring ({one_line(self._keyring)}).", "$text-muted")
            )
            yield Static(classes="problem")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(SecretField).focus()

    def action_store(self) -> None:
        try:
            key = checked_key(self.query_one(SecretField).value)
        except CrushpyError as error:
            self.query_one(".problem", Static).update(Content(clean(str(error))))
            return
        self.dismiss(key)
