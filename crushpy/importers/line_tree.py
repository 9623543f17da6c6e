"""A file of entries that name their parents, as a tree: which of its lines lead to the last message."""

from collections.abc import Iterable

_NONE = -1


class LineTree:
    """Holds a few numbers for each line, so that a file of hundreds of megabytes fits."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        """Of every id the place in the lists below."""
        self._numbers: list[int] = []
        self._parents: list[int] = []
        self._last = _NONE
        """The place of the last message."""
        self._linked = False
        """Some line names its parent: the file is a tree and not a list."""
        self._unknown: dict[int, str] = {}
        """Parents that were not there yet when a line named them."""
        self._families: dict[str, list[int]] = {}
        self._family_of: dict[int, str] = {}
        self._calls: dict[int, list[str]] = {}
        self._answers: dict[str, list[int]] = {}
        self._known: set[int] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def knows(self, number: int) -> bool:
        """False for a line whose id another line had before."""
        return number in self._known

    def add(
        self,
        number: int,
        name: str,
        parent: str | None,
        *,
        is_message: bool,
        follows: bool = False,
        family: str = "",
        calls: Iterable[str] = (),
        answers: Iterable[str] = (),
    ) -> None:
        """The next line. `follows`: where it names no parent, it comes after the line before it. Lines of one
        `family` belong together, and so do calls and their answers, whatever parents they name."""
        if name in self._places:
            return
        place = len(self._numbers)
        self._places[name] = place
        self._known.add(number)
        self._numbers.append(number)
        above = _NONE
        if parent is not None:
            above = self._places.get(parent, _NONE)
            self._linked = True
            if above == _NONE:
                self._unknown[place] = parent
        elif follows:
            above = place - 1
        self._parents.append(above)
        if family:
            self._families.setdefault(family, []).append(place)
            self._family_of[place] = family
        if listed := list(calls):
            self._calls[place] = listed
        for call in answers:
            self._answers.setdefault(call, []).append(place)
        if is_message:
            self._last = place

    def branch(self) -> set[int]:
        """The numbers of the lines that led to the last message; all lines where none names a parent."""
        if not self._linked:
            return set(self._numbers)
        for place, parent in self._unknown.items():
            # Named before it came, or not in the file at all: then the line before is the best we know.
            self._parents[place] = self._places.get(parent, place - 1)
        found: set[int] = set()
        place = self._last
        while place != _NONE and place not in found:  # a circle cannot hang the walk
            found.add(place)
            place = self._parents[place]
        # Replies with several calls branch into one line for each answer.
        for place in list(found):
            found.update(self._families.get(self._family_of.get(place, ""), ()))
        for place in list(found):
            for call in self._calls.get(place, ()):
                found.update(self._answers.get(call, ()))
        return {self._numbers[place] for place in found}
