"""Prints, as JSON, the shape of everything that this code keeps in a store: a program, run with the code of a release.

``events`` are the kinds of the log, ``shapes`` the JSON Schema of each type in it and of all that stands in a row,
``rewritten`` the types that are read, changed and written again.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import msgspec

from a2a_handoff.core.agents import Agent
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Webhook
from a2a_handoff.stores.migrations import scripts


def main() -> None:
    """Print."""
    kinds = get_args(Event)
    _, shapes = msgspec.json.schema_components([*kinds, Handoff, Agent, Webhook])
    rewritten: set[str] = set()
    found = ["Handoff"]
    while found:
        name = found.pop()
        if name not in rewritten:
            rewritten.add(name)
            found += re.findall(r'"#/\$defs/([^"]+)"', json.dumps(shapes[name]))
    said: dict[str, Any] = {
        "events": sorted(kind.__name__ for kind in kinds),
        "shapes": shapes,
        "rewritten": sorted(rewritten),
        "steps": {database: len(scripts(database)) for database in ("sqlite", "postgres")},
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
