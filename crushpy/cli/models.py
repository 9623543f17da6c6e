"""`crushpy models`: lists models, their windows and prices, and what is needed to use them."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crushpy.llm.offers import Offer
    from crushpy.settings import Settings


def register(app: typer.Typer) -> None:
    app.command("models")(models_command)


def models_command(
    wanted: Annotated[
        str, typer.Argument(metavar="[FILTER]", help="Only names that hold these words.", show_default=False)
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Also models that no key or server is there for.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models within reach: by the keys that are set, the settings, and servers on this machine."""
    import asyncio

    from crushpy.llm.offers import local_offers, offers
    from crushpy.llm.select import default_model

    settings = _settings()
    known = _matching(offers(settings), wanted)
    local = _matching(asyncio.run(local_offers(settings)), wanted)
    listed = [offer for offer in known if everything or offer.ready]
    default = default_model(settings)
    if as_json:
        _print_json([*listed, *local], default)
    else:
        hidden = [offer for offer in known if not offer.ready and not everything]
        _print_text(listed, local, hidden, default, wanted)
    sys.stdout.flush()


def _settings() -> "Settings":
    from crushpy.errors import UsageError
    from crushpy.paths import Paths, project_root
    from crushpy.settings import load, project_file

    try:
        cwd = Path.cwd()
    except OSError as error:
        raise UsageError("The current folder is gone.", "Change to another one (cd).") from error
    paths = Paths()
    trusted = False
    if project_file(cwd).exists():
        from crushpy.permissions.trust import is_trusted

        trusted = is_trusted(paths, project_root(cwd))
    loaded = load(paths, cwd, trusted=trusted)
    for warning in loaded.warnings:
        print(f"crushpy: {warning}", file=sys.stderr)
    return loaded.settings


def _matching(offers: "Iterable[Offer]", wanted: str) -> "list[Offer]":
    words = wanted.lower().split()
    return [offer for offer in offers if all(word in offer.info.name.lower() for word in words)]


# --- JSON ----------------------------------------------------------------------------------------------


def _print_json(offers: "Sequence[Offer]", default: str) -> None:
    import json

    print(json.dumps([_as_json(offer, default) for offer in offers], indent=2))


def _as_json(offer: "Offer", default: str) -> dict[str, Any]:
    info = offer.info
    row: dict[str, Any] = {
        "name": info.name,
        "default": info.name == default,
        "ready": offer.ready,
        "how": offer.how,
        "context_window": info.context_window,
        "window_source": info.source,
        "max_output_tokens": info.max_output_tokens,
        "input_cost": info.input_cost,
        "output_cost": info.output_cost,
        "tools": info.tools,
        "images": info.images,
        "thinking": info.thinking,
    }
    if offer.api_base:
        row["api_base"] = offer.api_base
        row["use"] = [f"crushpy -m {info.name}"] if offer.ready else list(_ways(offer))
    return row


# --- text ----------------------------------------------------------------------------------------------


def _print_text(
    listed: "Sequence[Offer]",
    local: "Sequence[Offer]",
    hidden: "Sequence[Offer]",
    default: str,
    wanted: str,
) -> None:
    lines = _table([*listed, *local], default)
    lines += _how_to_use(local)
    if not listed and not local:
        lines.append(f"No model within reach matches {wanted!r}.")
    if hidden:
        lines += ["", *_out_of_reach(hidden)]
    if not hidden and not listed and not local:
        lines += _nearest(wanted)
    print("\n".join(lines))


def _table(offers: "Sequence[Offer]", default: str) -> list[str]:
    from crushpy.llm.figures import price, size
    from crushpy.sanitize import one_line

    if not offers:
        return []
    rows = [("model", "window", "output", "$ in", "$ out", "")]
    for offer in offers:
        info = offer.info
        doubt = "?" if info.source == "default" else ""
        rows.append(
            (
                one_line(info.name) + (" *" if info.name == default else ""),
                size(info.context_window) + doubt,
                size(info.max_output_tokens),
                price(info.input_cost),
                price(info.output_cost),
                offer.how,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in range(1, 5)), row[5]]
        ).rstrip()
        for row in rows
    ]
    notes = ["", "$ is for a million tokens."]
    if any(row[0].endswith(" *") for row in rows):
        notes[-1] += " * is used where no model is named."
    if any(row[1].endswith("?") for row in rows):
        notes[-1] += ' ? is a guess: set [models."<name>"] context_window.'
    return lines + notes


def _how_to_use(local: "Sequence[Offer]") -> list[str]:
    """For each server that is not set up yet: the two ways to use it."""
    lines: list[str] = []
    seen: set[str] = set()
    for offer in local:
        if offer.ready or offer.api_base in seen:
            continue
        seen.add(offer.api_base)
        once, for_good = _ways(offer)
        lines += ["", f"{offer.how}, {offer.api_base}:", f"  once:     {once}", f"  for good: {for_good}"]
    return lines


def _ways(offer: "Offer") -> tuple[str, str]:
    from crushpy.llm.local_servers import ways
    from crushpy.sanitize import one_line

    provider, _, model = one_line(offer.info.name).partition("/")
    return ways(provider, offer.api_base, model)


def _out_of_reach(hidden: "Sequence[Offer]") -> list[str]:
    """How many more there are, and the keys that would bring them."""
    from crushpy.llm.vendors import PROVIDERS

    counts = Counter(offer.how for offer in hidden)
    wishes = [f"set {provider.variables[0]}" for provider in PROVIDERS]
    named = "; ".join(f"{wish} for {counts[wish]}" for wish in wishes if counts[wish])
    more = f"{len(hidden):,} more are known (--all lists them)"
    return [f"{more}: {named}." if named else f"{more}."]


def _nearest(wanted: str) -> list[str]:
    from crushpy.llm.catalog import suggest

    near = suggest(wanted)
    return (
        [f"Nearest names: {', '.join(near)}."] if near else ["`crushpy models --all` lists every known one."]
    )
