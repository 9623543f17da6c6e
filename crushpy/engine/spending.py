"""Budgets in money or tokens: of a conversation, and of a project and day. Checked before each request."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

from crushpy.core.errors import UsageError
from crushpy.core.events import Emit, Notice
from crushpy.core.messages import Data, Usage
from crushpy.engine.session.session import LiveSession
from crushpy.engine.turn.limits import BudgetReached
from crushpy.settings.schema import BUDGET_FORMS, BUDGET_PATTERN, BudgetSettings
from crushpy.storage.store import Store

ANNOUNCED_SHARE = 0.8
CONVERSATION, DAY = "budget of this conversation", "budget of this project for today"
NO_PRICE = (
    "{} has no known price: only the tokens of its requests are counted, and a budget in usd does not limit "
    "them. Set one in tokens: /budget 200k"
)
_FACTORS = {"k": 1_000, "m": 1_000_000}


class Amount(Data, frozen=True):
    value: float
    is_money: bool
    """US dollars; else tokens."""

    def used(self, usage: Usage) -> float:
        return usage.cost if self.is_money else usage.total

    def words(self, value: float) -> str:
        return f"{value:.2f}usd" if self.is_money else f"{value:,.0f} tokens"


def parse_amount(text: str) -> Amount | None:
    """The amount that a text names; None if it is empty or 0. Raises UsageError."""
    found = re.search(BUDGET_PATTERN, text)
    if found is None:
        raise UsageError(f"{text!r} is not a budget.", f"Give {BUDGET_FORMS}.")
    number, unit = float(found["number"] or 0), found["unit"] or ""
    return Amount(number * _FACTORS.get(unit, 1), unit == "usd") if number else None


class Spending:
    """What a conversation has left. Its usage is read from storage, where every agent of it, on whatever
    machine, records each request: they share the budgets, and no request starts once one is used up."""

    def __init__(
        self,
        store: Store,
        session: LiveSession,
        project: str,
        settings: Callable[[], BudgetSettings],
        has_price: Callable[[str], bool],
        ask: Callable[[str, str], Awaitable[bool]] | None,
        emit: Emit,
    ) -> None:
        """`ask` lets the user decide whether to go on; None if there is no user to wait for."""
        self._store, self._session, self._project = store, session, project
        self._settings, self._has_price, self._ask, self._emit = settings, has_price, ask, emit
        self._lock = asyncio.Lock()
        self._stored = dict[str, Usage]()
        self._known = session.usage
        """What the session had used when the stored figures were read."""
        self._granted = dict[str, float]()
        """What was used when the user let a turn go on: the budget counts from there."""
        self._told = set[str]()
        self.declined = False
        """The user has stopped the turn at a budget: the other agents of the turn do not ask again."""

    def _budgets(self) -> dict[str, Amount]:
        chosen = self._settings()
        named = {CONVERSATION: self._session.info.budget or chosen.conversation, DAY: chosen.project_day}
        return {name: amount for name, text in named.items() if (amount := parse_amount(text)) is not None}

    async def choose(self, text: str) -> str:
        """Gives the conversation another budget, 0 for none, unless `text` is empty. Returns what is left, in
        words. Raises UsageError."""
        if text:
            parse_amount(text)
            await self._session.update(budget=text)
            self._granted.clear()
        await self.read()
        forms = "/budget 5usd or /budget 200k sets one"
        return f"Left of the budget: {self.left}." if self.left else f"There is no budget; {forms}."

    async def read(self) -> None:
        """Reads what was used from storage."""
        root, budgets = self._session.info.root_id, self._budgets()
        if CONVERSATION in budgets:
            self._stored[CONVERSATION] = await self._store.usage.sum_conversation(root)
        if DAY in budgets:
            midnight = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))
            self._stored[DAY] = await self._store.usage.sum_project(self._project, root, midnight)
        self._known = self._session.usage

    @property
    def left(self) -> str:
        """What is left of the budget that is used up first; empty if there is none."""
        since = self._session.usage - self._known
        found: list[tuple[float, str]] = []
        for name, amount in self._budgets().items():
            used = amount.used(self._stored.get(name, Usage()) + since)
            rest = max(0.0, self._limit(name, amount) - used)
            found.append((rest / amount.value, amount.words(rest)))
        return min(found)[1] if found else ""

    def _limit(self, name: str, amount: Amount) -> float:
        return self._granted.get(name, 0.0) + amount.value

    async def admit(self, model: str, *, asks: bool = False) -> None:
        """Called before each request; `asks`: the user may be asked to go on. Raises BudgetReached."""
        if not self._budgets():
            return
        async with self._lock:  # other agents wait for the answer
            await self.read()
            for name, amount in self._budgets().items():
                used, limit = amount.used(self._stored[name]), self._limit(name, amount)
                figures = f"{amount.words(used)} of {amount.words(limit)}"
                if used >= limit:
                    await self._go_on(amount, f"The {name} is used up: {figures}.", asks=asks)
                    self._granted[name] = used
                elif used >= ANNOUNCED_SHARE * limit:
                    self._tell(f"{name} {limit}", f"80% of the {name} is used: {figures}.")
                if amount.is_money and not self._has_price(model):
                    self._tell(model, NO_PRICE.format(model))

    async def _go_on(self, amount: Amount, reached: str, *, asks: bool) -> None:
        """Returns if the user lets the turn go on."""
        may_ask = asks and not self.declined
        more = f"go on with {amount.words(amount.value)}"
        if may_ask and self._ask is not None and await self._ask(reached, more):
            return
        self.declined = self.declined or asks
        raise BudgetReached(reached, "/budget and --budget set another one.")

    def _tell(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._emit(Notice(text, "warning"))
