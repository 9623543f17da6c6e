"""Checks of keys, the model and local model servers."""

import os
from collections.abc import AsyncIterator, Iterator
from itertools import groupby

from crushpy.cli.checkup.installation import CheckContext, Finding, fail, ok, warn
from crushpy.core.errors import UsageError
from crushpy.core.messages import first_names
from crushpy.llm.errors import ModelError


def keys(context: CheckContext) -> Iterator[Finding]:
    """The source of each provider's key: environment, keyring, file or none. Never the key."""
    from crushpy.llm.key_store import key_file_damaged, locate_key, stored_names
    from crushpy.llm.vendors import BASES, PROVIDERS

    usual = (*(provider.name for provider in PROVIDERS), "azure")
    missing: list[str] = []
    if key_file_damaged():
        hint = "Correct it, or remove it and store the keys again: crushpy connect PROVIDER"
        yield fail(f"{context.paths.key_file} cannot be read, so no stored key is used", hint)
    for name in dict.fromkeys((*context.settings.providers, *usual, *sorted(stored_names()))):
        location = locate_key(name, context.settings)
        if location.held:
            value = os.environ[location.variable]
            if value == value.strip().strip("'\""):
                yield ok(f"{name}: environment, {location.variable} is set")
            else:
                told = f"{location.variable} has white space or quotes around it"
                yield warn(told, "Set it again without them.")
        elif location.stored:
            yield _check_stored(context, name)
        elif location.variable or name not in context.settings.providers:
            missing.append(name)
    for name in BASES:
        if os.environ.get(name):
            yield ok(f"{name} is {os.environ[name]}")
    hint = "`crushpy connect PROVIDER` stores one; `crushpy models` shows the models of each provider."
    yield ok(f"none for {', '.join(missing)}" if set(usual) - {*missing} else "none is set", hint)


def _check_stored(context: CheckContext, name: str) -> Finding:
    from crushpy.llm.key_store import find_key

    found = find_key(name, context.settings)
    if found.in_file:
        file = context.paths.key_file
        if file.stat().st_mode & 0o077:
            return fail(f"{name}: other users can read {file}", f"chmod 600 {file}")
        return ok(f"{name}: file {file}, readable only by you, not encrypted")
    if found.problem:
        return fail(f"{name}: the keyring cannot be read. {found.problem}", f"crushpy connect {name}")
    return ok(f"{name}: keyring")


async def model(context: CheckContext) -> AsyncIterator[Finding]:
    from crushpy.engine.side_calls import probe_model
    from crushpy.llm.catalog import DEMO
    from crushpy.llm.model_listing import choose_default
    from crushpy.llm.provider_factory import create_provider

    try:
        name = await choose_default(context.settings)
    except UsageError as error:
        yield fail(error.message, error.hint)
        return
    yield ok(f"{name}, because {_selection_reason(context, name)}")
    if name == DEMO:
        yield warn(
            "it is a built-in demo, not a language model",
            "Run `crushpy connect anthropic`, set a provider's key such as ANTHROPIC_API_KEY, "
            "or use your own server: `crushpy models`.",
        )
    for finding in _check_learnt(context, name):
        yield finding
    reachable = True
    other_models = (context.settings.small_model, context.settings.compaction.model)
    for model_name in dict.fromkeys((name, *filter(None, other_models))):
        try:
            await create_provider(model_name, context.settings).close()
        except ModelError as error:
            reachable = reachable and model_name != name
            yield fail(error.message, error.hint)
    if context.online and reachable:
        try:
            yield ok(await probe_model(name, context.settings))
        except ModelError as error:
            yield fail(f"{name} does not answer: {error.message}", error.hint)


def _selection_reason(context: CheckContext, name: str) -> str:
    from crushpy.llm.catalog import provider_of
    from crushpy.llm.key_store import locate_key

    if context.settings.model:
        return f"it is configured ({context.loaded.origins.get('model', 'default')})"
    provider = provider_of(name)
    location = locate_key(provider, context.settings)
    if location.held:
        return f"no setting names a model and {location.variable} is set"
    if location.stored:
        return f"no setting names a model and {location.store} has the key for {provider}"
    return "no setting names a model, and no key is set"


def _check_learnt(context: CheckContext, name: str) -> Iterator[Finding]:
    """The window of the model, and how it calls tools."""
    from crushpy.engine.models import Models
    from crushpy.llm.learnt import LearntModels

    info = Models(context.settings, LearntModels(context.paths.learnt_file)).info(name)
    if info.source == "default":
        yield warn(
            f"its window is unknown; {info.context_window:,} tokens are assumed",
            f"crushpy config set 'models.\"{name}\".context_window' NUMBER",
        )
    else:
        source = "learnt from its server" if info.source == "learnt" else f"from the {info.source}"
        yield ok(f"its window is {info.context_window:,} tokens ({source})")
    if info.call_form:
        yield ok(f"it writes tool calls as text ({info.call_form}), which are read from there")


async def local_servers(context: CheckContext) -> AsyncIterator[Finding]:
    from crushpy.llm.model_listing import list_local_models, local_model_commands, local_ports

    found = await list_local_models(context.settings)
    for base, models in groupby(found, key=lambda model: model.api_base):
        served = list(models)
        names = [model.info.name for model in served]
        hint = "" if served[0].ready else "To use it: " + local_model_commands(served[0])[1]
        yield ok(f"{served[0].how} at {base}: {first_names(names, 3)}", hint)
    if not found:
        ports = ", ".join(str(port) for port in sorted(local_ports().values()))
        yield ok(f"none found on this machine (ports {ports})" if ports else "not checked")
