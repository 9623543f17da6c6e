"""Prints for people and for programs, whatever stdout is."""

import json
import os
import sys
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """A terminal gets plain ASCII: JSON leaves some control characters as they are."""
    print_text(json.dumps(value, indent=2, ensure_ascii=sys.stdout.isatty()) + "\n")


def print_text(text: str) -> bool:
    """Writes to stdout, whatever its encoding. False, quietly, where the reader has gone (`| head`)."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
