"""The code blocks of a reply, to copy one of them."""


def code_blocks(markdown: str) -> list[str]:
    """What stands between fences, block by block, as it was written."""
    blocks: list[str] = []
    inside: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = _fence(line)
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append("\n".join(inside))
            inside, fence = [], ""
        else:
            inside.append(line)
    return [*blocks, "\n".join(inside)] if fence else blocks


def _fence(line: str) -> str:
    """The marks that open or close a block; empty where the line has none."""
    text = line.lstrip(" ")
    if len(line) - len(text) > 3 or not text.startswith(("```", "~~~")):
        return ""
    return text[: len(text) - len(text.lstrip(text[0]))]
