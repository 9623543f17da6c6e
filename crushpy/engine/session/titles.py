"""A better title than the prompt's first line, from the small model, once a conversation has begun."""

from crushpy.core.templates import Templates
from crushpy.engine.models import Models
from crushpy.engine.one_shot import ask_once
from crushpy.engine.session.session import TITLE_LENGTH
from crushpy.security.sanitize import one_line

TITLE_TOKENS = 60
EXCERPT = 1_500
"""Characters of the prompt and of the reply that are shown."""


async def suggest_title(models: Models, templates: Templates, model: str, prompt: str, reply: str) -> str:
    """A short title, or nothing where the model did not give one. Raises ModelError."""
    text = f"User: {prompt[:EXCERPT]}\n\nAgent: {reply[:EXCERPT]}"
    answer, _ = await ask_once(models, model, templates.render("title"), "transcript", text, TITLE_TOKENS)
    title = one_line(answer).strip().strip("\"'`*# ").rstrip(".")
    return title if 0 < len(title) <= TITLE_LENGTH else ""
