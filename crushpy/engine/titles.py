"""A better title than the prompt's first line, from the small model, once a conversation has begun."""

from crushpy.context.tags import element
from crushpy.engine.live import TITLE_LENGTH, user_message
from crushpy.engine.models import Models
from crushpy.engine.reply import ModelCall
from crushpy.llm.protocol import Request
from crushpy.prompts import Templates
from crushpy.sanitize import one_line

EXCERPT = 1_500
"""Characters of the prompt and of the reply that are shown."""


async def suggest_title(models: Models, templates: Templates, model: str, prompt: str, reply: str) -> str:
    """A short title, or nothing where the model did not give one. Raises ModelError."""
    text = f"User: {prompt[:EXCERPT]}\n\nAgent: {reply[:EXCERPT]}"
    request = Request(
        model=model,
        system=templates.render("title"),
        messages=(user_message(element("transcript", text)),),
        max_output_tokens=60,
    )
    draft = await ModelCall(models.provider(model), request, lambda _: None, _nothing).run()
    title = one_line("".join(draft.text)).strip().strip("\"'`*# ").rstrip(".")
    return title if 0 < len(title) <= TITLE_LENGTH else ""


async def _nothing() -> None:
    pass
