"""Layers as a tree of dotted paths, and sums over subtrees."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.trace_index import StepIndex

NO_LAYER = "(no layer)"
_DEEPEST = 64  # names are not trusted: beyond this number of dots the rest is one name
_KINDS = len(CATEGORIES)


class LayerTree:
    """The layers of a step's memory. Nodes are numbered from the top down, each node before its children.

    Children come in the order in which the step first names them, which is about the order of the model; children whose
    names are numbers are sorted. The last node is for memory without a layer, if there is such memory.

    Attributes:
        names: last part of the path of each node.
        parent: i4[nodes], -1 for roots.
        depth: i4[nodes], 0 for roots.
        end: i4[nodes], one behind the last node of the subtree.
        node: i4[names of the step + 1], node of each layer by its index; -1: no node. The last entry is for index -1.
        allocated_bytes: i8[nodes], bytes that the step allocated in each subtree.
    """

    def __init__(self, index: StepIndex) -> None:
        names = index.trace.names
        used = np.zeros(len(names) + 1, bool)
        used[index.layer[index.born]] = True
        numbers = np.flatnonzero(used[:-1]).tolist()
        nameless = [n for n in numbers if not names[n]]
        numbers = [n for n in numbers if names[n]]
        self._index = index
        self.names: list[str] = []
        parent, depth, leaves = self._grow([names[n] for n in numbers])
        self.node = np.full(len(names) + 1, -1, np.int32)
        self.node[numbers] = leaves
        self._nameless = bool(nameless or used[-1])
        if self._nameless:
            self.node[[*nameless, -1]] = len(self.names)
            self.names.append(NO_LAYER)
            parent.append(-1)
            depth.append(0)
        self.parent, self.depth = np.array(parent, np.int32), np.array(depth, np.int32)
        self.end = self._ends()
        self._node_of_block = self.node[index.layer[index.born]]
        new = index.born >= index.trace.existing
        allocated = np.bincount(self._node_of_block[new], index.size_bytes[new], len(self)).astype(np.int64)
        self.allocated_bytes = self.totals(allocated)

    def __len__(self) -> int:
        return len(self.names)

    def _grow(self, paths: list[str]) -> tuple[list[int], list[int], list[int]]:
        """Create the nodes of some paths: parent and depth of each node, and the node of each path."""
        children: list[dict[str, int]] = [{}]  # in order of appearance; the first one is above all roots
        leaves = []
        for path in paths:
            node = 0
            for part in path.split(".", _DEEPEST):
                if part not in children[node]:
                    children[node][part] = len(children)
                    children.append({})
                node = children[node][part]
            leaves.append(node)
        parent, depth, number = [], [], [-1] * len(children)
        waiting = [(-1, 0, name, child) for name, child in reversed(_in_order(children[0]))]
        while waiting:
            above, level, name, node = waiting.pop()
            here = number[node] = len(self.names)
            self.names.append(name)
            parent.append(above)
            depth.append(level)
            waiting += [(here, level + 1, part, child) for part, child in reversed(_in_order(children[node]))]
        return parent, depth, [number[node] for node in leaves]

    def _ends(self) -> NDArray[np.int32]:
        end = np.arange(1, len(self) + 1, dtype=np.int32)
        for node in range(len(self) - 1, -1, -1):
            if (above := self.parent[node]) >= 0 and end[above] < end[node]:
                end[above] = end[node]
        return end

    def path(self, node: int) -> str:
        """Name of a layer; "" for memory without one."""
        if self._nameless and node == len(self) - 1:
            return ""
        parts = []
        while node >= 0:
            parts.append(self.names[node])
            node = int(self.parent[node])
        return ".".join(reversed(parts))

    def find(self, path: str) -> int | None:
        """Return the node of a path, None where the step has no such layer."""
        return next((node for node in range(len(self)) if self.path(node) == path), None)

    def totals(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums over each subtree of the nodes' own values: i8[nodes, ...] in the shape of ``own``."""
        sums = np.zeros((len(self) + 1, *own.shape[1:]), np.int64)
        np.cumsum(own, axis=0, out=sums[1:])
        return sums[self.end] - sums[:-1]

    def usage_by_category(self, row: int) -> NDArray[np.int64]:
        """Return i8[nodes, len(CATEGORIES)]: bytes in use after a row in each subtree; the roots' add up to all."""
        index = self._index
        alive = np.flatnonzero(index.alive(row))
        cell = self._node_of_block[alive] * _KINDS + index.trace.category[index.born[alive]]
        own = np.bincount(cell, index.size_bytes[alive], len(self) * _KINDS)  # below 2**53: exact
        return self.totals(own.astype(np.int64).reshape(-1, _KINDS))

    def below(self, node: int) -> NDArray[np.bool_]:
        """Return bool[names of the step + 1]: layers in a subtree, by their index; the last entry is for index -1."""
        return (self.node >= node) & (self.node < self.end[node])

    @property
    def parents(self) -> NDArray[np.int64]:
        """Nodes that have children."""
        return np.flatnonzero(self.end > np.arange(len(self)) + 1)

    def in_sight(self, unfolded: Set[int]) -> NDArray[np.int64]:
        """Return the nodes whose ancestors are all unfolded, from the top down."""
        visible, node = [], 0
        while node < len(self):
            visible.append(node)
            node = node + 1 if node in unfolded else int(self.end[node])
        return np.array(visible, np.int64)

    def levels(self, most: int) -> set[int]:
        """Return the nodes to unfold so that as many whole levels as fit into ``most`` rows are visible.

        The first level is unfolded in any case.
        """
        deepest = int((np.cumsum(np.bincount(self.depth)) <= most).sum()) - 1
        return {node for node in self.parents.tolist() if self.depth[node] < deepest}


def _in_order(children: dict[str, int]) -> list[tuple[str, int]]:
    """Sort by number where all names are numbers, as in ``nn.Sequential``, else by order of appearance."""
    items = list(children.items())
    if all(name.isascii() and name.isdigit() for name in children):
        items.sort(key=lambda child: (len(child[0]), child[0]))  # no number has too many digits for that
    return items
