"""Textual says `App[Unknown]` of `widget.app`; this says what it is."""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from textual.app import App
    from textual.message_pump import MessagePump


def app_of(node: "MessagePump") -> "App[object]":
    return cast(Any, node).app
