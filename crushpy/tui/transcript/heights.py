"""How tall each item is and where it stands: a Fenwick tree, so that 10,000 items cost what 10 cost."""

from collections.abc import Iterable


class Heights:
    """Heights by index. Reading a position, finding an index and changing a height are all logarithmic."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tree = [0, *self._heights]
        for node in range(1, len(self._tree)):
            parent = node + (node & -node)
            if parent < len(self._tree):
                self._tree[parent] += self._tree[node]
        self.total = sum(self._heights)

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def __setitem__(self, index: int, height: int) -> None:
        change = height - self._heights[index]
        if not change:
            return
        self._heights[index] = height
        self.total += change
        node = index + 1
        while node < len(self._tree):
            self._tree[node] += change
            node += node & -node

    def append(self, height: int) -> None:
        self._heights.append(height)
        self.total += height
        node = len(self._tree)
        covered = height
        child = node - 1
        while child > node - (node & -node):
            covered += self._tree[child]
            child -= child & -child
        self._tree.append(covered)

    def before(self, index: int) -> int:
        """The sum of the heights before `index`: the row where it begins."""
        total = 0
        while index > 0:
            total += self._tree[index]
            index -= index & -index
        return total

    def find(self, row: int) -> tuple[int, int]:
        """Which index covers `row`, and how far below its beginning that is. Past the end: the last row."""
        if row >= self.total:
            last = self._last_tall()
            return last, max(0, self._heights[last] - 1) if self._heights else 0
        index = 0
        rest = max(0, row)
        step = 1 << len(self._heights).bit_length()
        while step:
            probe = index + step
            if probe < len(self._tree) and self._tree[probe] <= rest:
                index = probe
                rest -= self._tree[probe]
            step >>= 1
        return index, rest

    def _last_tall(self) -> int:
        for index in range(len(self._heights) - 1, -1, -1):
            if self._heights[index]:
                return index
        return 0
