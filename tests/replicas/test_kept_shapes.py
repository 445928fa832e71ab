"""What this code keeps in a store can be read by the previous release, and the other way round, field by field.

Brokers of both run on one database during an upgrade, and either reads what the other wrote. A test that lets them run
(``test_previous_release``) meets the events that its tasks bring; this one looks at all there are.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.stores.migrations import USABLE_SINCE
from tests.support import previous
from tests.support.served import ROOT

Kept = dict[str, Any]

#: What differs and does no harm, and why. A release empties it.
HARMLESS: dict[str, str] = {}
#: Types of which every field is written, also at its default.
WRITTEN_WHOLE = ("Policy",)


def kept_by(root: Path) -> Kept:
    """What the code in a folder keeps."""
    program = (sys.executable, "-P", str(ROOT / "tests" / "support" / "kept_shapes.py"))
    told = subprocess.run(program, env={"PYTHONPATH": str(root)}, check=True, capture_output=True, cwd=root)
    return json.loads(told.stdout)


def harm(before: Kept, after: Kept) -> list[str]:
    """What one of two releases cannot read, or loses, of what the other one writes."""
    found = [
        f"event {kind}: the previous release does not know it" for kind in _more(before, after, "events")
    ]
    found += [f"event {kind}: stored ones cannot be read any more" for kind in _more(after, before, "events")]
    for name, shape in before["shapes"].items():
        if name in after["shapes"]:
            found += _of_a_type(name, shape, after["shapes"][name], rewritten=name in before["rewritten"])
    found += [
        f"{database}: a step of the schema is missing"
        for database, steps in before["steps"].items()
        if after["steps"][database] < steps
    ]
    return found


def _more(before: Kept, after: Kept, what: str) -> list[str]:
    return sorted(set(after[what]) - set(before[what]))


def _of_a_type(name: str, before: Kept, after: Kept, *, rewritten: bool) -> list[str]:
    found = [f"{name} {value!r}: the previous release does not know it" for value in _values(before, after)]
    found += [f"{name} {value!r}: stored ones cannot be read any more" for value in _values(after, before)]
    old, new = before.get("properties", {}), after.get("properties", {})
    needs = set(before.get("required", ())) ^ set(after.get("required", ()))
    found += [f"{name}.{field}: has to be there for one release only" for field in sorted(needs)]
    for field, shape in old.items():
        if field not in new:
            found.append(f"{name}.{field}: is gone")
        elif shape.get("default") != new[field].get("default") and name not in WRITTEN_WHOLE:
            found.append(f"{name}.{field}: has another default, and is not written where it has that")
        elif _bare(shape) != _bare(new[field]):
            found.append(f"{name}.{field}: is of another type")
    if rewritten:
        found += [
            f"{name}.{field}: the previous release drops it when it writes the state anew"
            for field in new.keys() - old.keys()
        ]
    return found


def _values(before: Kept, after: Kept) -> list[str]:
    return sorted(set(after.get("enum", ())) - set(before.get("enum", ())))


def _bare(shape: Kept) -> Kept:
    return {key: value for key, value in shape.items() if key not in ("default", "description")}


def test_what_both_releases_keep_can_be_read_by_both() -> None:
    assert harm(kept_by(previous.code()), kept_by(ROOT)) == list(HARMLESS)


def test_brokers_of_the_previous_release_may_use_the_newest_schema() -> None:
    steps = kept_by(previous.code())["steps"]
    assert all(since <= steps[database] for database, since in USABLE_SINCE.items())
    assert steps.keys() == USABLE_SINCE.keys()


def _new_event(kept: Kept) -> None:
    kept["events"].append("HandoffForgotten")


def _lost_event(kept: Kept) -> None:
    kept["events"].remove("HandoffOffered")


def _new_state(kept: Kept) -> None:
    kept["shapes"]["State"]["enum"].append("asleep")


def _renamed(kept: Kept) -> None:
    fields = kept["shapes"]["HandoffOffered"]["properties"]
    fields["agent"] = fields.pop("agent_id")


def _another_default(kept: Kept) -> None:
    kept["shapes"]["Attempt"]["properties"]["deliveries"]["default"] = 2


def _another_type(kept: Kept) -> None:
    kept["shapes"]["Attempt"]["properties"]["number"]["type"] = "string"


def _needed(kept: Kept) -> None:
    kept["shapes"]["Agent"]["required"].append("role")


def _new_in_a_state(kept: Kept) -> None:
    kept["shapes"]["Handoff"]["properties"]["mood"] = {"type": "string", "default": ""}


def _step_lost(kept: Kept) -> None:
    kept["steps"]["sqlite"] -= 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_new_event, "event HandoffForgotten: the previous release does not know it"),
        (_lost_event, "event HandoffOffered: stored ones cannot be read any more"),
        (_new_state, "State 'asleep': the previous release does not know it"),
        (_renamed, "HandoffOffered.agent_id: is gone"),
        (_another_default, "Attempt.deliveries: has another default, and is not written where it has that"),
        (_another_type, "Attempt.number: is of another type"),
        (_needed, "Agent.role: has to be there for one release only"),
        (_new_in_a_state, "Handoff.mood: the previous release drops it when it writes the state anew"),
        (_step_lost, "sqlite: a step of the schema is missing"),
    ],
)
def test_a_change_that_would_do_harm_is_named(change: Callable[[Kept], None], told: str) -> None:
    before = kept_by(ROOT)
    after = copy.deepcopy(before)
    change(after)
    assert harm(before, after) == [told]


def test_a_new_field_of_an_event_does_no_harm() -> None:
    before = kept_by(ROOT)
    after = copy.deepcopy(before)
    after["shapes"]["HandoffOffered"]["properties"]["mood"] = {"type": "string", "default": ""}
    assert harm(before, after) == []


def test_a_clone_without_the_history_is_told_of_where_services_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(previous, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("TEST_SERVICES", "required")
    with pytest.raises(pytest.fail.Exception, match=r"not in the history of .*git fetch --unshallow"):
        previous.code(repository=tmp_path)
    monkeypatch.delenv("TEST_SERVICES")
    with pytest.raises(pytest.skip.Exception, match="not in the history"):
        previous.code(repository=tmp_path)
