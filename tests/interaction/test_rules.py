"""Every sentence of the specification that demands something is a rule with tests that run, or says why not."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.manifest import BY_ID, ids_of
from tests.interaction.requirements import ONCE, SURFACES
from tests.interaction.rules import OUT, RULES, Rule, exceptions, proofs
from tests.interaction.sentences import CHAPTERS, addresses, comments, sentences
from tests.interaction.test_manifest import proven_ways


def _rule(rule: Rule) -> str:
    return rule.at.split()[0]


EACH = pytest.mark.parametrize("rule", RULES, ids=_rule)


def _test(name: str) -> Callable[..., Any]:
    path, _, function = name.partition("::")
    module = importlib.import_module("tests." + path.removesuffix(".py").replace("/", "."))
    return getattr(module, function)


def test_every_sentence_is_a_rule_or_out_with_a_reason_and_none_is_both() -> None:
    named = Counter(at for entry in (*RULES, *OUT) for at in entry.at.split())
    assert sorted(set(addresses()) ^ named.keys()) == []
    assert [at for at, count in named.items() if count > 1] == []
    assert all(out.why and out.because for out in OUT)


@EACH
def test_every_test_of_a_rule_is_there_and_runs(rule: Rule) -> None:
    assert rule.rule.endswith(".")
    assert rule.shown or rule.tests
    assert [one for one in rule.shown if one not in BY_ID] == []
    for name in rule.tests:
        assert name.partition("::")[2].startswith("test_")
        marks = {mark.name for mark in getattr(_test(name), "pytestmark", [])}
        assert marks.isdisjoint({"skip", "skipif", "xfail"}), name


@EACH
def test_every_way_of_a_rule_is_covered_and_every_other_way_of_1_0_has_a_reason(rule: Rule) -> None:
    for one in rule.shown:
        assert set(rule.ways) <= proven_ways(one), one
    assert set(rule.ways) <= {*SURFACES, *ONCE}
    assert all(exceptions(rule).values()), exceptions(rule)
    assert rule.but.keys() <= exceptions(rule).keys()


def test_the_tests_that_the_page_counts_are_those_that_there_are() -> None:
    for requirement in BY_ID:
        assert all(requirement in ids_of(_test(name)) for name in proofs(requirement))
        assert proofs(requirement)


def test_sentences_are_found_wherever_they_stand() -> None:
    text = """# Title that MUST not count
## 3. One
A **MUST** b. This may. It [SHALL](#x) c. [`D` MUST](#y).
```
MUST in a fence
```
#### 3.1. Two
Servers **MUST**:

- **A**: first. Second is a remark.
    - deeper
1. third MUST

Not any more.
- not an item of it
### 6.1 Elsewhere
It MUST not count.
### Unnumbered
Nor MUST this.
## 14. Last
MUST NOT.
"""
    assert "6" not in CHAPTERS
    assert list(sentences(text)) == [
        ("3", "A MUST b."), ("3", "It SHALL c."), ("3", "D MUST."),
        ("3.1", "Servers MUST:"), ("3.1", "A: first."), ("3.1", "deeper"), ("3.1", "third MUST"),
        ("14", "MUST NOT."),
    ]  # fmt: skip


def test_demands_in_the_comments_of_a_proto_are_found() -> None:
    text = """// A license that must not count twice.

service S {
  // It must do. It may not.
  rpc Do(A) returns (B);
}
// About A. For A, `x` MUST
// be there.
message A {
  int32 x = 1; // not a comment that must count
  // Must be y.
  int32 y = 2;
}
"""
    assert list(comments(text)) == [
        ("proto/", "A license that must not count twice."), ("proto/S", "It must do."),
        ("proto/A", "For A, x MUST be there."), ("proto/A", "Must be y."),
    ]  # fmt: skip
