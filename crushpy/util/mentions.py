"""Finds the files that a prompt mentions with an @."""

import re

_MENTION = re.compile(r"""(?:^|(?<=[\s(\[{<"'`,;=:]))@("[^"\n]{1,1000}"|[^\s"]{1,1000})""")
_PUNCTUATION = "\"'`.,;:!?)]}>"


def mentioned_files(text: str) -> list[str]:
    """Return the names written as `@file` or `@"a file"`, in order, without duplicates."""
    if "@" not in text:
        return []
    words = (match[1] for match in _MENTION.finditer(text))
    names = (word.strip('"') if word.startswith('"') else word.rstrip(_PUNCTUATION) for word in words)
    return list(dict.fromkeys(names))
