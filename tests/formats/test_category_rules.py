"""Rules that give allocations their categories: what a file may say, and which rule decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.core.options import RULES
from memtui.formats.category_rules import RuleSet, Subject, bundled, read

WEIGHT = Subject(
    "weights", "between", "encoder.0.attn", "Block", ("aten::addmm", "aten::softmax"), "(in_arg:encoder.0.attn).\n"
)


def rules(tmp_path: Path, text: str) -> RuleSet:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read(path)


def category(found: RuleSet, subject: Subject) -> str | None:
    rule = found.rule_of(subject)
    return rule.category if rule else None


def test_the_first_rule_of_which_all_fields_match_decides(tmp_path):
    found = rules(
        tmp_path,
        """
        [[rule]]
        category = "wrong kind"
        kind = "gradients"
        layer = "encoder.*"
        [[rule]]
        category = "wrong layer"
        kind = "weights"
        layer = ["head", "encoder"]
        [[rule]]
        category = "right"
        kind = ["gradients", "weights"]
        layer = ["decoder.*", "encoder.?.a[tx]*"]
        [[rule]]
        category = "too late"
        kind = "*"
        """,
    )
    assert found.name == "mine"
    assert category(found, WEIGHT) == "right"
    assert category(found, WEIGHT._replace(layer="decoder.1")) == "right"
    assert category(found, WEIGHT._replace(layer="head")) == "wrong layer"
    assert category(found, WEIGHT._replace(layer="body")) == "too late"


@pytest.mark.parametrize(
    ("pattern", "matches"), [("*softmax*", True), ("softmax", False), ("*SoftMax*", False), ("*conv*", False)]
)
def test_any_operation_of_a_layer_may_match(tmp_path, pattern, matches):
    found = rules(tmp_path, f'[[rule]]\ncategory = "a"\noperator = "{pattern}"')
    assert category(found, WEIGHT) == ("a" if matches else None)
    ignoring = rules(tmp_path, f'ignore_case = true\n[[rule]]\ncategory = "a"\noperator = "{pattern.upper()}"')
    assert (category(ignoring, WEIGHT) is not None) == (pattern.strip("*").lower() == "softmax" and "*" in pattern)


@pytest.mark.parametrize(
    ("field", "pattern", "matches"),
    [
        *[("scope", "decode*", True), ("scope", "greedy", True), ("scope", "aten::addmm", False)],
        *[("file", "*/torch/nn/modules/rnn.py", True), ("file", "/me/*.py", True), ("file", "*/conv.py", False)],
    ],
)
def test_any_scope_and_any_file_may_match(tmp_path, field, pattern, matches):
    found = rules(tmp_path, f'[[rule]]\ncategory = "a"\n{field} = "{pattern}"')
    files = ("/me/train.py", "/lib/torch/nn/modules/rnn.py")
    assert category(found, WEIGHT) is None, "nothing is known of it"
    subject = WEIGHT._replace(scopes=("decode (train.py:9)", "greedy"), files=files)
    assert category(found, subject) == ("a" if matches else None)


def test_what_no_rule_matches_has_no_category_or_that_of_the_rest(tmp_path):
    rule = '[[rule]]\ncategory = "a"\nphase = "optimiser"\n'
    assert category(rules(tmp_path, rule), WEIGHT) is None
    assert category(rules(tmp_path, f'otherwise = "rest"\n{rule}'), WEIGHT) == "rest"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "rules are written"),
        ("rule = 1", "rules are written"),
        ("rules = []", "'rules' means nothing"),
        ('otherwise = ""\n[[rule]]\ncategory = "a"\nlayer = "x"', "otherwise is the name"),
        ('ignore_case = 1\n[[rule]]\ncategory = "a"\nlayer = "x"', "true or false"),
        ('[[rule]]\ncategory = "a"\nlayer = "x"\n[[rule]]\nlayer = "x"', "rule 2: has no category"),
        ('[[rule]]\ncategory = "a"', "rule 1: matches everything"),
        (
            '[[rule]]\ncategory = "a"\nscopes = "x"',
            "'scopes' means nothing; a rule has category and kind, phase, layer, layer_type, scope, operator, file",
        ),
        ('[[rule]]\ncategory = "a"\nlayer = []', "layer is a pattern"),
        ('[[rule]]\ncategory = "a"\nlayer = [1]', "layer is a pattern"),
        ('[[rule]]\ncategory = "a"\nkind = "wieghts"', "kind is one of weights, gradients"),
        ("rule = [1]", "rule 1: is not a table"),
        (
            '[[rule]]\ncategory = "a"\nkey = "k"\nlayer = "x"\n[[rule]]\ncategory = "b"\nkey = "k"\nlayer = "y"',
            "the key 'k' has two categories",
        ),
        ("[[rule", "is not TOML"),
    ],
)
def test_what_a_file_may_not_say(tmp_path, text, why):
    with pytest.raises(UserError, match=r"mine\.toml: ") as error:
        rules(tmp_path, text)
    assert why in str(error.value)


def test_bundled_rules():
    assert [bundled(name).name for name in RULES] == list(RULES)
    own, layers, compat = map(bundled, RULES)
    assert category(own, WEIGHT) == "weights"
    assert category(layers, WEIGHT) == "Attention"
    assert category(layers, WEIGHT._replace(layer="", operators=("aten::gru", "aten::addmm"))) == "RNN"
    assert category(layers, WEIGHT._replace(layer_type="GRU", operators=("aten::addmm",))) == "RNN"
    assert category(layers, WEIGHT._replace(layer_type="GroupNorm")) == "Normalization"
    assert category(layers, WEIGHT._replace(layer="head.fc", operators=())) == "Linear"
    assert category(layers, WEIGHT._replace(layer="", operators=())) == "Other"
    for file, name in (("rnn", "RNN"), ("sparse", "Embedding"), ("batchnorm", "Normalization"), ("linear", "Linear")):
        of_torch = ("/me/train.py", "/lib/torch/nn/modules/module.py", f"/lib/torch/nn/modules/{file}.py")
        assert category(layers, WEIGHT._replace(layer="", operators=(), files=of_torch)) == name
    assert category(compat, WEIGHT) == "Weights"
