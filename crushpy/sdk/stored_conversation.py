"""`crushpy.Conversation`: stored conversations, with everything that the command line does with them."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.context.carried import PinView
from crushpy.context.edits import ContextEdit, EditEffect, EditKind
from crushpy.context.inspect import Inspection
from crushpy.context.standing_rules import RuleFact
from crushpy.core.errors import UsageError
from crushpy.core.messages import Message
from crushpy.core.start_options import StartOptions
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.engine.conversation import Conversation as LiveConversation
from crushpy.engine.session.browser import SessionBrowser
from crushpy.engine.session.session import load_session
from crushpy.sdk.python_agent import BACKGROUND
from crushpy.sdk.scripted_model import ScriptedModel, model_options
from crushpy.storage.records import SearchHit, SessionInfo

if TYPE_CHECKING:
    from crushpy.engine.session.tree import TreeRow

T = TypeVar("T")


class Conversation:
    """One session of a stored conversation. Nothing is held open between two calls."""

    def __init__(self, info: SessionInfo, model: "str | ScriptedModel" = "") -> None:
        """Use `open` or `list`."""
        self.info = info
        self.id = info.id
        self.model = model
        self.context = ContextList(self)
        """What fills the window, message by message."""
        self.pins = PinBoard(self)
        """Texts that every compaction keeps."""
        self.rules = RuleBoard(self)
        """The user's standing rules."""

    def __repr__(self) -> str:
        return f"<Conversation {self.id} {self.info.title!r}>"

    @classmethod
    def list(cls, cwd: str | Path | None = ".", *, limit: int | None = None) -> "list[Conversation]":
        """The conversations of a folder, the newest first; of all folders if `cwd` is None."""
        folder = None if cwd is None else str(Path(cwd).expanduser().absolute())
        found = _browse(lambda browser: browser.store.sessions.list_tips(folder, limit))
        return [cls(info) for info in found]

    @classmethod
    def open(cls, session: str = "latest", *, model: "str | ScriptedModel" = "") -> "Conversation":
        """A session by its id or a unique prefix of it; `latest` is the latest of the current folder. `model`
        writes summaries, if not the conversation's own."""
        return cls(_browse(lambda browser: browser.find(session, str(Path.cwd()))), model)

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def messages(self) -> "list[Message]":
        """The history of this session as the model has it: each has `id`, `role`, `text`, `calls`, ..."""

        async def load(browser: SessionBrowser) -> "list[Message]":
            return list((await load_session(browser.store, self.info, read_only=True)).history)

        return _browse(load)

    @property
    def tree(self) -> "list[TreeRow]":
        """All sessions of the conversation, each after the one it continues."""
        return _browse(lambda browser: browser.tree(self.id))

    def search(self, words: str) -> "list[SearchHit]":
        """Messages with these words, in this session and those it continues."""

        async def find(browser: SessionBrowser) -> "list[SearchHit]":
            await browser.index_all(lambda _done, _total: None)
            groups = await browser.search(words, within=self.id, each=None)
            return [hit for group in groups for hit in group.hits]

        return _browse(find)

    def export(
        self,
        file: str | Path,
        form: Literal["markdown", "json", "html"] = "markdown",
        *,
        keep_secrets: bool = False,
    ) -> int:
        """Writes the session and those it continues to a file; as `html`, its whole conversation as a page.
        Returns the number of messages."""
        target = Path(file).expanduser()
        return _browse(lambda browser: browser.export(self.id, target, form, keep_secrets=keep_secrets))

    # --- changing -----------------------------------------------------------------------------------------

    def fork(self, at: str = "") -> "Conversation":
        """A fork that ends at a message; without one, at the end. This session is not changed."""
        return Conversation(_browse(lambda browser: browser.fork(self.id, at)), self.model)

    def undo_compaction(self) -> "Conversation":
        """Undoes the compaction that opened this session. Returns its parent, which is the tip again."""
        return Conversation(_browse(lambda browser: browser.undo_compaction(self.id)), self.model)

    def rewind(self, to: str, *, files: bool = True) -> "Conversation":
        """Goes back to a message: restores the files as they were then, and returns the fork that ends
        there. Raises Error if a file could not be restored because others have changed it."""

        async def rewind(live: LiveConversation) -> SessionInfo:
            rewinder = live.files.rewinder
            target = await rewinder.target(live.info.id, to)
            planned = await rewinder.plan_rewind(live.info.id, target) if files else None
            outcome = await live.files.rewind(target, planned)
            if outcome is None or outcome.session is None:
                raise live.failure or UsageError("The conversation could not be rewound.")
            if outcome.conflicts:
                names = ", ".join(conflict.path for conflict in outcome.conflicts)
                raise UsageError(f"Files that were changed since are not restored: {names}.")
            return outcome.session

        return Conversation(_work(self, rewind), self.model)

    def compact(self, focus: str = "", *, dry_run: bool = False) -> "Conversation | Rehearsal | None":
        """Compacts now and returns the child, or with `dry_run` what would be carried over. None if there is
        nothing to compact."""

        async def compact(live: LiveConversation) -> SessionInfo | None:
            return live.info if await live.context.compact(focus) else None

        if dry_run:
            return _work(self, lambda live: live.context.rehearse(focus), read_only=True)
        child = _work(self, compact)
        return Conversation(child, self.model) if child is not None else None


def _work(
    stored: Conversation, work: Callable[[LiveConversation], Awaitable[T]], *, read_only: bool = False
) -> T:
    """Opens the conversation, does `work` with it and closes it."""

    async def run() -> T:
        model, providers, flags = model_options(stored.model)
        options = StartOptions(session=stored.id, model=model, read_only=read_only)
        flags |= options.setting_flags()
        environment = ProjectEnvironment(Path(stored.info.cwd), flags, logs=False)
        live = await open_conversation(environment, options, HostAdditions(providers=providers))
        try:
            await live.context.count_exactly()
            return await work(live)
        finally:
            await live.close()

    return BACKGROUND.run(run)


class Board:
    """A part of a conversation that can be listed and changed."""

    def __init__(self, stored: Conversation) -> None:
        self._stored = stored


class ContextList(Board):
    def list(self) -> Inspection:
        """The parts of the next request, with their sizes in tokens."""

        async def inspect(live: LiveConversation) -> Inspection:
            return live.context.inspect()

        return _work(self._stored, inspect, read_only=True)

    def drop(self, *messages: str, also: bool = False) -> EditEffect:
        """Does not send these messages any more. Nothing is deleted. `repeats` of the result are messages
        with the same text; with `also` they are dropped, too."""
        return self._edit("drop", messages, also=also)

    def shorten(self, *messages: str) -> EditEffect:
        """Sends only their beginnings and ends."""
        return self._edit("shorten", messages)

    def restore(self, *messages: str) -> EditEffect:
        """Sends them in full again; `all` restores everything."""
        return self._edit("restore", messages)

    def _edit(self, kind: EditKind, messages: tuple[str, ...], *, also: bool = False) -> EditEffect:
        edits = [ContextEdit(kind, message, also) for message in messages]
        return _work(self._stored, lambda live: live.context.edit(edits))


class PinBoard(Board):
    def list(self) -> "Sequence[PinView]":
        return _work(self._stored, lambda live: live.pins.listed(), read_only=True).pins

    def add(self, text: str) -> PinView:
        return _work(self._stored, lambda live: live.pins.add_text(text))

    def remove(self, number: int) -> None:
        _work(self._stored, lambda live: live.pins.remove(number))


class RuleBoard(Board):
    def list(self) -> "Sequence[RuleFact]":
        """Those that apply."""

        return _work(self._stored, lambda live: live.rules.listed(), read_only=True).valid

    def add(self, text: str) -> RuleFact:
        return _work(self._stored, lambda live: live.rules.add(text))

    def drop(self, number: int) -> None:
        _work(self._stored, lambda live: live.rules.drop(number))


def _browse(work: Callable[[SessionBrowser], Awaitable[T]]) -> T:
    async def run() -> T:
        async with ProjectEnvironment(Path.cwd(), logs=False).open_store() as store:
            return await work(SessionBrowser(store))

    return BACKGROUND.run(run)
