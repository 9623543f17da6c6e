"""Tells the user something in a corner of the screen, made harmless first."""

from typing import Literal

from textual.widget import Widget

from crushpy.sanitize import clean


def tell(
    node: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    node.notify(clean(text), severity=severity, markup=False)
