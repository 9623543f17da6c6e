"""`crushpy models`: lists models, their windows and prices, and what is needed to use them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_command,
    argument,
    format_table,
    option,
    print_either,
    print_note,
)
from crushpy.cli.workspace import load_here
from crushpy.core.paths import Paths
from crushpy.llm.catalog import nearest_names
from crushpy.llm.learnt import LearntModels
from crushpy.llm.model_listing import (
    ListedModel,
    ServerList,
    apply_learnt,
    ask_servers,
    format_price,
    format_window,
    learn_listed_window,
    list_local_models,
    list_models,
    local_model_commands,
)
from crushpy.llm.provider_factory import default_model, server_address
from crushpy.llm.vendors import PROVIDERS
from crushpy.security.redact import redact
from crushpy.security.sanitize import one_line


def register(app: typer.Typer) -> None:
    add_command(app, "models", models_command)


async def models_command(
    wanted: Annotated[str, argument("Only names that contain these words.", metavar="[FILTER]")] = "",
    everything: Annotated[bool, option("--all", "Also models without a key or server.")] = False,
    refresh: Annotated[
        bool, option("--refresh", "Ask servers again instead of using lists cached for an hour.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the available models: those of providers with a key or URL, and of local servers."""
    import asyncio

    settings, learnt = load_here().settings, LearntModels(Paths().learnt_file)
    lists, found = await asyncio.gather(
        ask_servers(settings, refresh=refresh), list_local_models(settings, set_up=False)
    )
    facts = learnt.current(lambda name: server_address(name, settings))
    known = _filter_models(apply_learnt(list_models(settings, lists, also=facts), facts, learnt), wanted)
    local = _filter_models(apply_learnt(found, facts, learnt), wanted)
    if learnt.problem:
        print_note(f"crushpy: {learnt.problem}")
    for model in (*known, *local):
        learn_listed_window(model, learnt)
    learnt.close()
    listed = [model for model in known if everything or model.ready]
    default = default_model(settings)
    hidden = [model for model in known if not model.ready and not everything]
    lines = [*_table([*listed, *local], default), *_usage_lines(local)]
    if not listed and not local:
        lines.append(f"No available model matches {wanted!r}.")
    if hidden:
        lines += ["", *_hidden_lines(hidden)]
    elif not listed and not local:
        names = ", ".join(nearest_names(wanted))
        lines.append(
            f"Nearest names: {names}." if names else "`crushpy models --all` lists all known models."
        )
    failures = list(_failure_lines(lists))
    lines += ["", *failures] if failures else []
    print_either(as_json, [_as_json(model, default) for model in (*listed, *local)], lines)
    for failure in failures if as_json else ():
        print_note(f"crushpy: {failure}")


def _failure_lines(lists: Sequence[ServerList]) -> Iterator[str]:
    for listing in lists:
        if listing.failure:
            address = f" at {redact(listing.api_base)}" if listing.api_base else ""
            fallback = "its last list is shown" if listing.asked_at else "the catalog is shown"
            yield f"{listing.provider}{address} could not be queried: {listing.failure}; {fallback}."


def _filter_models(models: Iterable[ListedModel], wanted: str) -> list[ListedModel]:
    words = wanted.lower().split()
    return [model for model in models if all(word in model.info.name.lower() for word in words)]


def _as_json(model: ListedModel, default: str) -> dict[str, Any]:
    info = model.info
    row: dict[str, Any] = {"name": info.name, "default": info.name == default}
    row |= {"ready": model.ready, "how": model.how}
    row |= {"context_window": info.context_window, "window_source": info.source}
    fields = ("max_output_tokens", "input_cost", "output_cost", "tools", "images", "thinking")
    row |= {field: getattr(info, field) for field in fields}
    row |= {"offered": model.offered, "call_form": info.call_form}
    if model.api_base:
        row["api_base"] = model.api_base
        row["use"] = [f"crushpy -m {info.name}"] if model.ready else list(local_model_commands(model))
    return row


def _table(models: Sequence[ListedModel], default: str) -> list[str]:
    if not models:
        return []
    rows = [("model", "window", "output", "$ in", "$ out", "")]
    for model in models:
        info = model.info
        source_mark = {"default": "?", "learnt": " learnt"}.get(info.source, "")
        rows.append(
            (
                one_line(info.name) + (" *" if info.name == default else ""),
                format_window(info.context_window) + source_mark,
                format_window(info.max_output_tokens),
                format_price(info.input_cost),
                format_price(info.output_cost),
                model.how + (f"; calls as text ({info.call_form})" if info.call_form else ""),
            )
        )
    notes = ["", "$ is per million tokens."]
    if any(row[0].endswith(" *") for row in rows):
        notes[-1] += " * is the default."
    if any(row[1].endswith("learnt") for row in rows):
        notes[-1] += " learnt: reported by its server."
    if any(row[1].endswith("?") for row in rows):
        notes[-1] += ' ? is assumed: set [models."<name>"] context_window.'
    return format_table(rows, right=range(1, 5)) + notes


def _usage_lines(local: Sequence[ListedModel]) -> list[str]:
    """For each server that is not configured: two ways to use it."""
    lines: list[str] = []
    others = [model for model in local if not model.ready]
    for base, models in groupby(others, lambda model: model.api_base):
        first = next(models)
        once, always = local_model_commands(first)
        lines += ["", f"{first.how}, {base}:", f"  once:     {once}", f"  always:   {always}"]
    return lines


def _hidden_lines(hidden: Sequence[ListedModel]) -> list[str]:
    """How many more models are known, and the keys they need."""
    counts = Counter(model.how for model in hidden)
    hints = [f"set {provider.variables[0]}" for provider in PROVIDERS]
    missing_keys = "; ".join(f"{hint} for {counts[hint]}" for hint in hints if counts[hint])
    count = f"{len(hidden):,} more are known (--all lists them)"
    return [f"{count}: {missing_keys}." if missing_keys else f"{count}."]
