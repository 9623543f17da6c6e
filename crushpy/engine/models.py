"""The models of a conversation: their providers, limits and requests."""

import asyncio
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.budget import Calibration, plausible, threshold_of
from crushpy.context.plan import TokenBudget
from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Image, Json, Message, Usage
from crushpy.core.templates import Templates
from crushpy.engine.step.toolset import LLM_TOOLS, Toolset
from crushpy.llm import catalog, vendors
from crushpy.llm.catalog import cost, explain_unknown, lookup
from crushpy.llm.errors import BadRequest
from crushpy.llm.learnt import LearntModel, LearntModels, add_ratio, with_learnt_window
from crushpy.llm.model_listing import open_provider
from crushpy.llm.protocol import DeferredTool, ModelInfo, Provider, Request, ToolSpec
from crushpy.llm.provider_factory import (
    chosen_placement,
    protocol_for,
    server_address,
    usual_placement,
    warm_up,
)
from crushpy.llm.tokens import image_rules
from crushpy.settings.schema import Profile, Settings
from crushpy.storage.records import SessionInfo
from crushpy.tools.truncate import MAX_RESULT_CHARS, MIN_RESULT_CHARS
from crushpy.util.images import ImageLimits

if TYPE_CHECKING:
    from crushpy.engine.spending import Spending
    from crushpy.llm.model_servers import ServedModel

SMALL_WINDOW = 32_768
"""Models whose window is no larger get the profile `small`, unless the settings say otherwise."""
SMALL_TEMPERATURE = 0.2
"""In that profile, on this machine: at the usual 0.8 small models invent results and forms of calls."""
SMALL_REPLY_SHARE = 4
"""In that profile a reply may take this part of the window, if its limit is unknown."""


class Models:
    """Providers are created on first use and kept: a connection serves the whole conversation.

    `for_tools` gives them the tools and instructions that requests offer.
    """

    def __init__(
        self,
        settings: Settings,
        learnt: LearntModels,
        providers: Mapping[str, Provider] | None = None,
        *,
        web_search: bool = False,
    ) -> None:
        """`providers`: those that are made already, by model. `web_search`: offer it."""
        self.settings = settings
        self._toolset = Toolset((), Templates())
        self._learnt = learnt
        self._providers: dict[str, Provider] = dict(providers or {})
        self._servers: dict[str, str] = {}
        self._refused: dict[str, int] = {}
        """Windows named by servers in this process."""
        self._served: dict[str, ServedModel] = {}
        """The models that servers described before the first request."""
        self._web_search = web_search
        self.spending: Spending | None = None
        """What the conversation may spend."""

    def for_tools(self, toolset: Toolset) -> "Models":
        """The same models and connections, with other tools."""
        lent = copy(self)
        lent._toolset = toolset
        return lent

    def limited_by(self, spending: "Spending") -> "Models":
        """The same models and connections, for requests that a budget limits."""
        lent = copy(self)
        lent.spending = spending
        return lent

    def provider(self, model: str) -> Provider:
        """The provider of `model`, which is prepared."""
        return self._providers[model]

    async def prepare(self, model: str, *, tools: bool = False) -> None:
        """Creates the provider of `model`, and asks a local server for its window, before the first request.

        Raises AuthenticationFailed if a key is missing, and BadRequest if `tools` are needed and the server
        says that the model has none.
        """
        if model not in self._providers:
            self._providers[model], served = await open_provider(model, self.settings)
            if served is not None:
                self._served[model] = served
                if served.context_window:
                    self.learn_window(model, served.context_window)
        if tools and (known := self._served.get(model)) is not None and known.tools is False:
            raise BadRequest(
                f"{model} does not support tools, which crushpy needs.",
                "Choose a model that does, with -m or /model: `crushpy models --json` shows which.",
            )

    async def forget(self, model: str) -> None:
        """Closes the provider of `model`: the next request looks up its key again."""
        if provider := self._providers.pop(model, None):
            await provider.close()

    def warm_up(self, model: str) -> None:
        """Prepares a request to `model` in the background."""
        warm_up(protocol_for(model, self.settings))

    def require_known(self, model: str) -> None:
        """Raises BadRequest, with similar names, for a model of an unknown provider."""
        provider = catalog.provider_of(model)
        if (
            catalog.is_known(model)
            or provider in self.settings.providers
            or vendors.vendor_of(provider).local
        ):
            return
        if not any(known.name.startswith(f"{provider}/") for known in catalog.all_models()):
            raise BadRequest(f"There is no model {model}.", explain_unknown(model))

    def info(self, model: str) -> ModelInfo:
        """Settings take precedence over learnt values, and those over the catalog."""
        return with_learnt_window(lookup(model, self.settings.models.get(model)), self.learnt(model))

    def window(self, model: str) -> int | None:
        """The model's window; None if it is unknown."""
        info = self.info(model)
        window = None if info.source == "default" else info.context_window
        refused = self._refused.get(model)
        return min(refused, window or refused) if refused else window

    def profile(self, model: str) -> Profile:
        """What `model` is offered."""
        own = self.settings.models.get(model)
        chosen = (own.profile if own else None) or self.settings.profile
        if chosen != "auto":
            return chosen
        is_small = (self.window(model) or DEFAULT_WINDOW) <= SMALL_WINDOW and model != catalog.DEMO
        return "small" if is_small else "full"

    def result_chars(self, model: str) -> int:
        """The length of the longest tool result for `model`."""
        if self.profile(model) == "full":
            return MAX_RESULT_CHARS
        return min(MAX_RESULT_CHARS, max(MIN_RESULT_CHARS, (self.window(model) or DEFAULT_WINDOW) // 4))

    def has_one_slot(self, model: str) -> bool:
        """Whether the server of `model` answers one request at a time, as far as is known: others wait."""
        server = self._server(model)
        slots = [served.slots for name, served in self._served.items() if self._server(name) == server]
        return 1 in slots or bool(vendors.vendor_of(catalog.provider_of(model)).local)

    def count_image(self, model: str, image: Image) -> int:
        return image_rules(model, protocol_for(model, self.settings)).tokens(image)

    def sees(self, model: str) -> bool:
        """Whether `model` accepts pictures; True if unknown."""
        return self.info(model).images is not False

    def image_limits(self, model: str) -> ImageLimits | None:
        """How large a picture `model` accepts; None if it accepts none."""
        return image_rules(model, protocol_for(model, self.settings)).limits if self.sees(model) else None

    def placement(self, model: str) -> str:
        return (
            chosen_placement(model, self.settings)
            or ("append" if self.learnt(model).status_placement == "append" else "")
            or usual_placement(model, self.settings)
        )

    # --- learnt values ----------------------------------------------------------------------------------

    @property
    def learning_problem(self) -> str:
        """Why learnt values cannot be read or stored; empty if they can."""
        return self._learnt.problem

    def learnt(self, model: str) -> LearntModel:
        """The learnt values of `model` on its current server."""
        return self._learnt.get(model, self._server(model))

    def _server(self, model: str) -> str:
        if model not in self._servers:
            self._servers[model] = server_address(model, self.settings)
        return self._servers[model]

    def ratios(self, model: str, counted: bool) -> Sequence[float]:
        known = self.learnt(model)
        return [ratio for ratio in (known.ratios if counted else known.rough_ratios) if plausible(ratio)]

    def learn_window(self, model: str, tokens: int) -> None:
        """The server named the model's window, in an error or when it was asked."""
        self._refused[model] = tokens
        self.learn(model, window=tokens)

    def accepted(self, model: str, tokens: int) -> None:
        """A request of this size was answered: forgets a smaller learnt window."""
        if tokens > self._refused.get(model, tokens):
            del self._refused[model]
        if tokens > (self.learnt(model).window or tokens):
            self.learn(model, window=None)
            if self.learnt(model).window:  # known under another name
                self.learn(model, window=0)

    def learn_ratio(self, model: str, told: Calibration, *, counted: bool) -> None:
        """Stores the ratio of reported to counted tokens."""
        if told.latest is not None:
            samples = told.samples if told.restarted else ()
            change = add_ratio(told.latest, counted=counted, replacing=samples)
            self._learnt.update(model, self._server(model), change)

    def learn(self, model: str, **news: object) -> None:
        """Stores fields of what is learnt about `model`."""
        self._learnt.update(model, self._server(model), lambda known: msgspec.structs.replace(known, **news))

    # --- requests ---------------------------------------------------------------------------------------

    def request(self, session: SessionInfo) -> Request:
        """The next model call of a session, without its messages."""
        profile = self.profile(session.model)
        specs = self._toolset.specs(self._terms(session) if session.compaction == "llm" else None, profile)
        return Request(
            model=session.model,
            system=self._toolset.instructions(session.system, profile),
            messages=(),
            tools=tuple(tool for tool in specs if not isinstance(tool, DeferredTool)),
            deferred=tuple(tool for tool in specs if isinstance(tool, DeferredTool)),
            web_search=self._web_search,
            max_output_tokens=self._longest_reply(session.model, profile),
            effort=self.settings.effort,
            temperature=self._temperature(session.model, profile),
        )

    def _temperature(self, model: str, profile: Profile) -> float | None:
        if (own := self.settings.models.get(model)) and own.temperature is not None:
            return own.temperature
        return SMALL_TEMPERATURE if profile != "full" and model in self._served else None

    def _longest_reply(self, model: str, profile: Profile) -> int | None:
        """A small model may go on until its window is full; a larger one has no limit if it is unknown."""
        known, window = self.info(model).max_output_tokens, self.window(model)
        if known or profile == "full" or not window:
            return known
        return window // SMALL_REPLY_SHARE

    def llm_tools(self, session: SessionInfo) -> tuple[ToolSpec, ...]:
        """The tools that are offered only in `llm`, whatever the method is now; none for a task."""
        specs = self._toolset.specs(self._terms(session), self.profile(session.model))
        return tuple(tool for tool in specs if tool.name in LLM_TOOLS)

    def _terms(self, session: SessionInfo) -> Json:
        """When and how the agent may call `new_session`: the variables of its template."""
        chosen, own = self.settings.compaction, self.settings.models.get(session.model)
        threshold = threshold_of(chosen.threshold, own.threshold if own else None)
        window = self.window(session.model) or DEFAULT_WINDOW
        limits = TokenBudget(window, chosen.fallback_threshold, 0, chosen.summary_tokens, 0)
        least = min(threshold, chosen.fallback_threshold) if threshold else None
        return {
            "threshold": round(least * 100) if least else None,
            "fallback": round(chosen.fallback_threshold * 100),
            "longest_summary": limits.longest_summary,
        }

    def priced(self, message: Message, search_cost: float = 0.0) -> Message:
        """The reply with the cost of its usage filled in, and of web searches."""
        if message.usage is None:
            return message
        usage = self.with_cost(message.model, message.usage) + Usage(cost=search_cost)
        return msgspec.structs.replace(message, usage=usage)

    def has_price(self, model: str) -> bool:
        return self.info(model).input_cost is not None

    def with_cost(self, model: str, usage: Usage) -> Usage:
        """`usage` with its cost, unless the provider reported it."""
        if usage.cost:
            return usage
        return msgspec.structs.replace(usage, cost=cost(self.info(model), usage))

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
        await asyncio.to_thread(self._learnt.close)
