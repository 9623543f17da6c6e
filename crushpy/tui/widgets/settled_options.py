"""Textual's list of options, for keys and clicks that come while its options change."""

from textual import events
from textual.widgets import OptionList


class SettledOptions(OptionList):
    """Textual would end the app over a page that is not laid out yet, or a click on a row that is gone.

    Beside another base it stands last: Textual takes styles from the first alone.
    """

    def on_click(self, event: events.Click) -> None:
        number = event.style.meta.get("option")
        if number is not None and number >= self.option_count:
            event.prevent_default()

    def action_page_up(self) -> None:
        if self.scrollable_content_region:
            super().action_page_up()

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()
