"""A question aside: one small model call beside the conversation; nobody sees more than its answer."""

from crushpy.context.tags import element
from crushpy.core.messages import Message, Text, Usage
from crushpy.engine.models import Models
from crushpy.engine.turn.model_call import ModelCall
from crushpy.llm.errors import EmptyReply
from crushpy.llm.protocol import Request


async def ask_once(
    models: Models, model: str, system: str, tag: str, text: str, limit: int
) -> tuple[str, Usage]:
    """What `model` makes of `text`, which stands in a tag: it is data. Raises ModelError."""
    request = Request(
        model=model,
        system=system,
        messages=(Message("aside", "user", (Text(element(tag, text)),)),),
        max_output_tokens=limit,
    )
    await models.prepare(model)
    call = ModelCall(
        models.provider(model),
        request,
        lambda _: None,
        _nothing,
        ask_again=lambda error: not isinstance(error, EmptyReply),  # an empty reply is an answer
    )
    draft = await call.run()
    return "".join(draft.text).strip(), models.with_cost(model, draft.usage or Usage())


async def _nothing() -> None:
    pass
