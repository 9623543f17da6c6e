"""The tags that mark what crushpy itself tells a model."""

import re

OWN_TAGS = (
    *("summary", "evidence", "request", "quotes", "context_status", "note", "instructions", "transcript"),
    *("previous_notes", "earlier_notes", "report", "pins", "pin", "rules", "skills", "skill", "agents"),
    "hook",
)
_ESCAPED = re.compile(rf"&lt;(?=\s*+(?:/\s*+)?(?:{'|'.join(OWN_TAGS)})\b)", re.IGNORECASE)


def restore_tags(text: str, original: str) -> str:
    """What a model meant that saw `original` with our tags escaped: they are raw again, unless the original
    itself contains escaped ones."""
    return text if "&lt;" not in text or _ESCAPED.search(original) else _ESCAPED.sub("<", text)


DIAGNOSTICS = "\n\n[From crushpy: diagnostics after edits]\n"
"""Precedes what language servers say at the end of a result."""
