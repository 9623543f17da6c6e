"""Windows and prices as people write them."""


def format_window(tokens: int | None) -> str:
    """A window: 200k, 1.0M."""
    if tokens is None:
        return "-"
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{round(tokens / 1_000)}k" if tokens >= 1_000 else str(tokens)


def format_price(dollars: float | None) -> str:
    """What a million tokens cost."""
    if dollars is None:
        return "-"
    return "free" if dollars == 0 else f"{dollars:.2f}"
