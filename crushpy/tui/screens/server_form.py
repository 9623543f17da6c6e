"""The form that an MCP server asks the user to fill in."""

from typing import Any, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Checkbox, Input, Select, Static

from crushpy.core.messages import Json
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.overlay import DialogScreen
from crushpy.tui.widgets.key_bar import KeyBar


class ServerForm(DialogScreen[Json]):
    """Dismissed with the answer in the form of the protocol: action and content."""

    DEFAULT_CSS = "ServerForm .asker { dock: top; background: $surface; }"
    AUTO_FOCUS = "Input, Checkbox, Select"
    BINDINGS = [
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("ctrl+d", "answer('decline')", "Decline", priority=True),
        Binding("escape", "answer('cancel')", "Cancel"),
    ]

    def __init__(self, server: str, question: Json) -> None:
        super().__init__()
        self._server = server
        self._question = question
        schema = cast(Json, question.get("requestedSchema") or {})
        self._fields = cast(dict[str, Json], schema.get("properties") or {})
        self._required = cast(list[str], schema.get("required") or [])

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            yield Static(Content.styled(f"The MCP server {self._server} asks", "bold"), classes="asker")
            yield Static(Content(clean(str(self._question.get("message", "")))[:2_000]))
            for number, (name, field) in enumerate(self._fields.items()):
                mark = " (required)" if name in self._required else ""
                yield Static(Content(one_line(str(field.get("title") or name)) + mark))
                yield self._widget(f"field-{number}", field)
            yield Static("", classes="problem")
        yield KeyBar()

    def _widget(self, key: str, field: Json) -> "Input | Checkbox | Select[str]":
        if field.get("type") == "boolean":
            return Checkbox("yes", value=bool(field.get("default")), id=key)
        if options := field.get("enum"):
            return Select([(one_line(str(option)), str(option)) for option in options], id=key)
        kind: Any = field.get("type") if field.get("type") in ("integer", "number") else "text"
        field_input = Input(one_line(str(field.get("default", ""))), type=kind, id=key)
        field_input.cursor_blink = False
        return field_input

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_focused)

    def _show_focused(self) -> None:
        """As little is scrolled as the size demands."""
        self.query_one(VerticalScroll).scroll_home(animate=False, immediate=True)
        if self.focused is not None:
            self.focused.scroll_visible(animate=False, immediate=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field, and sends the form from the last one."""
        if event.input.id == f"field-{len(self._fields) - 1}":
            self.action_send()
        else:
            self.focus_next()

    def action_answer(self, action: str) -> None:
        self.dismiss({"action": action})

    def action_send(self) -> None:
        content: Json = {}
        for number, (name, field) in enumerate(self._fields.items()):
            value: Any = cast(Any, self.query_one(f"#field-{number}")).value
            problem = "is required" if value in ("", Select.NULL) and name in self._required else ""
            try:
                if isinstance(value, str) and field.get("type") in ("integer", "number") and value:
                    value = int(value) if field["type"] == "integer" else float(value)
            except ValueError:  # such as a minus sign alone
                problem = "is not a number"
            if problem:
                self.query_one(".problem", Static).update(Content(f"{one_line(name)} {problem}"))
                return
            if value not in ("", Select.NULL):
                content[name] = value
        self.dismiss({"action": "accept", "content": content})
