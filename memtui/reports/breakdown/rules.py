"""Allocations added up by category, by a set of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.core.call_stacks import CallStacks
from memtui.core.fast_numpy import distinct
from memtui.core.options import RULES
from memtui.formats.category_rules import RuleSet, Subject, bundled
from memtui.formats.mxnet_tags import PADDING_BYTES, kind_of_key, raw_tag, tag_for

COMPAT_RULES = RULES[-1]


class Layers(NamedTuple):
    """What is known of the layers and calls of a step.

    Attributes:
        operators: the operations of each layer, by the number of its name.
        types: classes of layers, by name.
        file_set: i8[n], of each row a number in ``file_sets``; None: there are no call stacks.
        file_sets: the files of a call stack, in the order in which they were called.
    """

    operators: Mapping[int, tuple[str, ...]]
    types: Mapping[str, str]
    file_set: NDArray[np.int64] | None = None
    file_sets: Sequence[tuple[str, ...]] = ((),)

    @classmethod
    def of(cls, trace: StepTrace, types: Mapping[str, str], stacks: CallStacks | None = None) -> Layers:
        named = (trace.layer >= 0) & (trace.op >= 0)
        pairs = distinct(trace.layer[named] * len(trace.names) + trace.op[named])
        ops_by_layer: dict[int, list[str]] = {}
        for layer, op in zip(*(each.tolist() for each in np.divmod(pairs, max(1, len(trace.names)))), strict=True):
            ops_by_layer.setdefault(layer, []).append(trace.name(op))
        operators = {layer: tuple(names) for layer, names in ops_by_layer.items()}
        if stacks is None or trace.stack is None or not len(stacks):
            return cls(operators, types)
        number, file_sets = stacks.file_sets()
        return cls(operators, types, np.append(number, 0)[trace.stack], file_sets)  # -1 is no stack, so without files


class Item(NamedTuple):
    """Allocations that are alike.

    Attributes:
        tag: as in an MXNet log.
        kind: index into CATEGORIES.
        bytes: their sum.
        allocations: their number.
        key: their category in an analysis file, which has nothing else of them.
        phase: index into PHASES; -1: not known.
        layer: path of their layer; empty: not known.
        layer_type: its class; empty: not known.
        operators, scopes, files: see ``category_rules.Subject``.
    """

    tag: str
    kind: int
    bytes: int
    allocations: int
    key: str | None = None
    phase: int = -1
    layer: str = ""
    layer_type: str = ""
    operators: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        phase = PHASES[self.phase] if self.phase >= 0 else ""
        of_layer = CATEGORIES[self.kind], phase, self.layer, self.layer_type
        return Subject(*of_layer, self.operators, raw_tag(self.tag), self.scopes, self.files)


class Bar(NamedTuple):
    """A category: ``share`` of the total, 0 to 1."""

    key: str
    name: str
    bytes: int
    allocations: int
    share: float


class Breakdown(NamedTuple):
    """Categories, and the allocations without a category, which are in no total."""

    bars: tuple[Bar, ...]
    dropped: tuple[Item, ...]

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all bars."""
        return sum(bar.bytes for bar in self.bars)

    @property
    def allocations(self) -> int:
        """Return the number of allocations in all bars."""
        return sum(bar.allocations for bar in self.bars)

    def sum_of(self, keys: Sequence[str]) -> int:
        """Return the bytes of some categories."""
        return sum(bar.bytes for bar in self.bars if bar.key in keys)


def items_of(trace: StepTrace, rows: NDArray[np.integer], layers: Layers | None) -> list[Item]:
    """Return the allocations in some rows of a trace.

    Args:
        trace: the trace.
        rows: of allocations.
        layers: what is known of them; None: names of operations are tags of an MXNet log.
    """
    file_set = None if layers is None else layers.file_set
    file_set = np.zeros(len(trace), np.int64) if file_set is None else file_set
    keys = np.stack([column[rows] for column in (trace.category, trace.phase, trace.layer, trace.op, file_set)])
    alike, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    groups = alike.shape[1]
    sizes = np.bincount(group, trace.delta_bytes[rows], groups).astype(np.int64).tolist()  # below 2**53: exact
    counts = np.bincount(group, minlength=groups).tolist()
    items = []
    for (kind, phase, layer, op, files), size, count in zip(alike.T.tolist(), sizes, counts, strict=True):
        name = trace.name(op)
        if layers is None:
            items.append(Item(name, kind, size, count))
            continue
        path = trace.name(layer)
        of_type = layers.types.get(path, "")
        calls = (name,) if name else layers.operators.get(layer, ())
        tag = tag_for(kind, path, name, of_type)
        scopes = tuple(name.split("/")[:-1])
        of_calls = calls, scopes, layers.file_sets[files]
        items.append(Item(tag, kind, size, count, None, phase, path, of_type, *of_calls))
    return items


def items_of_sums(sums: Mapping[str, tuple[float, Sequence[str]]]) -> list[Item]:
    """Return the categories of an analysis file."""
    return [Item(key, kind_of_key(key), int(total), len(tags), key) for key, (total, tags) in sums.items()]


def without_padding(items: Iterable[Item], coarse: Sequence[str]) -> list[Item]:
    """Return items without the padding of MXNet's pool; items with a size in whole MB (``coarse``) stay."""
    in_mb = Counter(coarse)
    requested = []
    for item in items:
        padded = max(0, item.allocations - in_mb[item.tag])
        requested.append(item._replace(bytes=max(0, item.bytes - PADDING_BYTES * padded)))
    return requested


def is_compat(rules: RuleSet) -> bool:
    """Whether these are the rules of MXNet's memory profiler, and not a user's of the same name."""
    return rules is bundled(COMPAT_RULES)


def break_down(items: Iterable[Item], rules: RuleSet) -> Breakdown:
    """Add allocations up by category, the largest first. Those that the rules give none are dropped."""
    sums: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    dropped = []
    for item in items:
        category = _category(item, rules)
        if category is None:
            dropped.append(item)
            continue
        key, name = category
        names[key] = name
        of_key = sums.setdefault(key, [0, 0])
        of_key[0] += item.bytes
        of_key[1] += item.allocations
    total = sum(size for size, _ in sums.values())
    bars = [Bar(key, names[key], size, count, size / total if total else 0.0) for key, (size, count) in sums.items()]
    return Breakdown(tuple(sorted(bars, key=lambda bar: -bar.bytes)), tuple(dropped))


def in_one_order(results: Sequence[Breakdown], *, complete: bool) -> list[Breakdown]:
    """Return breakdowns by the same rules with their categories in one order: the largest of all together first.

    ``complete``: each has the categories of all, with no bytes where it had none.
    """
    sums: Counter[str] = Counter()
    names: dict[str, str] = {}
    for bar in (bar for result in results for bar in result.bars):
        sums[bar.key] += bar.bytes
        names[bar.key] = bar.name
    ordered = []
    for result in results:
        bars = {bar.key: bar for bar in result.bars}
        keys = [key for key, _ in sums.most_common() if complete or key in bars]
        ordered.append(result._replace(bars=tuple(bars.get(key, Bar(key, names[key], 0, 0, 0.0)) for key in keys)))
    return ordered


def _category(item: Item, rules: RuleSet) -> tuple[str, str] | None:
    """Return key and name of a category; None where the rules have none."""
    if item.key and is_compat(rules):  # the original decided already
        return item.key, next((rule.category for rule in rules.rules if rule.key == item.key), item.key)
    rule = rules.rule_of(item.subject)
    return (rule.key, rule.category) if rule else None
