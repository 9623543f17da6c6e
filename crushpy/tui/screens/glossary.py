"""The words that crushpy uses for the context, one key away from the card that shows them."""

from textual.content import Content

from crushpy.tui.screens.text_page import TextPage

WORDS = (
    ("conversation", "What you see as one thing: a first session and those that continue it."),
    (
        "session",
        "One window's worth of messages. It ends with a fresh start, and stays readable and searchable.",
    ),
    ("window", "How many tokens the model takes in one request. The gauge shows how much of it is used."),
    (
        "fresh start",
        "The moment a session ends and its child opens, with a summary, evidence and the last messages.",
    ),
    ("compaction", "What is done to make a fresh start. auto: crushpy decides when; llm: the model decides."),
    (
        "summary",
        "What a model, the agent or you wrote about what came before. The template of it is a file of yours.",
    ),
    (
        "evidence",
        "Facts that crushpy takes from what really happened: requests, files, commands, failures, todos.",
    ),
    ("fact", "A path, a command, a failing command, a todo, a request of yours or an earlier note."),
    ("coverage", "How many of the facts left behind are found, letter by letter, in what was carried over."),
    ("tail", "The newest messages, which a fresh start carries over as they are."),
    ("pin", "A sentence, a file or a message that every fresh start carries word for word."),
    ("threshold", "How full the window may get before auto starts afresh; the safety net holds for llm too."),
    ("prepared", "The summary was made in the background, so that nobody waits for it."),
    ("recall", "The agent's search over everything that is stored and not in its window."),
    (
        "lineage",
        "All sessions of a conversation, branches and tasks too. Any fresh start can be undone there.",
    ),
)


class GlossaryScreen(TextPage):
    heading = "Words"

    def text(self, width: int) -> Content:
        return glossary(width)


def glossary(width: int) -> Content:
    """Each word with what it means, beside it or below where there is no room."""
    column = max(len(word) for word, _ in WORDS) + 2
    room = min(width, 100) - column
    lines: list[Content] = []
    for word, meaning in WORDS:
        if room < 24:
            lines.append(Content.styled(word, "bold $accent"))
            lines += [Content(f"  {line.plain}") for line in Content(meaning).wrap(max(8, width - 2))]
            continue
        wrapped = [line.plain for line in Content(meaning).wrap(room)]
        lines.append(Content.assemble((f"{word:<{column}}", "bold $accent"), wrapped[0]))
        lines += [Content(f"{'':<{column}}{line}") for line in wrapped[1:]]
    return Content("\n").join(lines)
