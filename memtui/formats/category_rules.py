"""Rules that give an allocation its category: files in TOML, of which three come with memtui.

A file is a list of rules, and the first that matches decides:

    otherwise = "rest"            # of what no rule matches; without it that is left out, and named

    [[rule]]
    category = "attention"
    layer = ["*.attn", "*.attn.*"]

A rule matches where each of its fields does, and a field where one of its patterns does: ``*`` stands for any text,
``?`` for a character, ``[ab]`` for one of some. The fields are those of ``Subject``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.core.errors import UserError
from memtui.core.files import read_toml

_FOLDER = "rules"
MOST_RULES = 10_000


class Subject(NamedTuple):
    """What rules see of an allocation.

    Attributes:
        kind: what it is for, of ``allocation_trace.CATEGORIES``.
        phase: when it was made, of ``allocation_trace.PHASES``.
        layer: path of the layer; empty: not known.
        layer_type: its class; empty: not known.
        operators: the operation that made it; where there is none, all that its layer called in the same step.
        tag: as in an MXNet log, in parentheses.
        scopes: what ran around the operation: calls, and ranges that the program named.
        files: source files of the calls in whose course it was made, where call stacks were recorded.
    """

    kind: str
    phase: str
    layer: str
    layer_type: str
    operators: tuple[str, ...]
    tag: str
    scopes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


FIELDS = ("kind", "phase", "layer", "layer_type", "scope", "operator", "file", "tag")
_MANY = {"scope": "scopes", "operator": "operators", "file": "files"}  # fields of which one has to match
_CHOICES = {"kind": CATEGORIES, "phase": PHASES}  # fields with a fixed vocabulary


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        category: name of the category.
        key: its name in files that other programs read.
        patterns: by field, one regular expression for all patterns; none: the rule matches everything.
    """

    category: str
    key: str
    patterns: Mapping[str, re.Pattern[str]]

    def matches(self, subject: Subject) -> bool:
        return all(_matches(pattern, field, subject) for field, pattern in self.patterns.items())


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """The rules of a file.

    Attributes:
        name: of the file, without its ending.
        rules: in the order in which they are tried; the last one may match everything.
    """

    name: str
    rules: tuple[Rule, ...]

    def rule_of(self, subject: Subject) -> Rule | None:
        """Return the first rule that matches; None where none does."""
        return next((rule for rule in self.rules if rule.matches(subject)), None)


@cache
def bundled(name: str) -> RuleSet:
    """Return rules that come with memtui, of ``options.RULES``."""
    return read(Path(str(files("memtui.formats") / _FOLDER / f"{name}.toml")))


def read(path: Path) -> RuleSet:
    """Return the rules of a file. Raises UserError with the number of the wrong rule."""
    document = read_toml(path)
    if unknown := sorted(document.keys() - {"rule", "otherwise", "ignore_case"}):
        raise UserError(f"{path}: {unknown[0]!r} means nothing; a file has otherwise, ignore_case and [[rule]]")
    otherwise, ignore_case, tables = document.get("otherwise"), document.get("ignore_case", False), document.get("rule")
    if not (otherwise is None or (isinstance(otherwise, str) and otherwise)):
        raise UserError(f"{path}: otherwise is the name of a category")
    if not isinstance(ignore_case, bool):
        raise UserError(f"{path}: ignore_case is true or false")
    if not isinstance(tables, list) or not tables or len(tables) > MOST_RULES:
        raise UserError(f"{path}: rules are written [[rule]], one at least and {MOST_RULES} at most")
    rules = []
    for number, table in enumerate(tables, start=1):
        try:
            rules.append(_rule(table, re.IGNORECASE if ignore_case else re.NOFLAG))
        except ValueError as error:
            raise UserError(f"{path}: rule {number}: {error}") from None
    of_key = {rule.key: rule.category for rule in rules}
    if other := [rule for rule in rules if of_key[rule.key] != rule.category]:
        raise UserError(f"{path}: the key {other[0].key!r} has two categories")
    return RuleSet(path.stem, (*rules, *([] if otherwise is None else [Rule(otherwise, otherwise, {})])))


def _rule(table: Any, flags: re.RegexFlag) -> Rule:
    if not isinstance(table, dict):
        raise ValueError("is not a table")
    if unknown := sorted(table.keys() - {"category", "key", *FIELDS}):
        raise ValueError(f"{unknown[0]!r} means nothing; a rule has category and {', '.join(FIELDS)}")
    category = table.get("category")
    if not isinstance(category, str) or not category:
        raise ValueError("has no category")
    if not isinstance(key := table.get("key", category), str):
        raise ValueError("key is a text")
    patterns = {field: _pattern(field, table[field], flags) for field in FIELDS if field in table}
    if not patterns:
        raise ValueError(f"matches everything: it needs one of {', '.join(FIELDS)}")
    return Rule(category, key, patterns)


def _pattern(field: str, given: Any, flags: re.RegexFlag) -> re.Pattern[str]:
    texts = given if isinstance(given, list) else [given]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{field} is a pattern, or a list of some")
    pattern = re.compile("|".join(map(fnmatch.translate, texts)), flags)
    choices = _CHOICES.get(field)
    if choices and not any(map(pattern.match, choices)):
        raise ValueError(f"{field} is one of {', '.join(choices)}, not {texts[0]}")
    return pattern


def _matches(pattern: re.Pattern[str], field: str, subject: Subject) -> bool:
    texts = getattr(subject, _MANY[field]) if field in _MANY else (getattr(subject, field),)
    return any(_match(pattern, text) for text in texts)


@lru_cache(1 << 16)
def _match(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.match(text) is not None
