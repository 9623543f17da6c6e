"""What a conversation used, what that cost and what lies ahead, in words."""

from crushpy.context.forecast import Forecast, dollars, in_words
from crushpy.core.messages import Usage


def cost_report(usage: Usage, forecast: Forecast) -> list[str]:
    """A line each. Without a price there is no money."""
    tokens = [
        f"{usage.input_tokens:,} in",
        f"{usage.cache_read_tokens:,} from the cache" if usage.cache_read_tokens else "",
        f"{usage.cache_write_tokens:,} into the cache" if usage.cache_write_tokens else "",
        f"{usage.output_tokens:,} out",
    ]
    first = f"This conversation: {usage.total:,} tokens ({', '.join(filter(None, tokens))})"
    if usage.cost:
        first += f", {dollars(usage.cost)}"
    return [first, *(f"Ahead: {line}" for line in in_words(forecast))]
