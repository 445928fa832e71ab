"""``drain``: take a broker out of service and wait until nothing is under way there.

Not here: what a broker does meanwhile (``drain``).
"""

from __future__ import annotations

import threading
import time

from a2a_handoff.cli.outcome import FAILED, Failed
from a2a_handoff.cli.place import Place
from a2a_handoff.cli.remote import Broker
from a2a_handoff.wire.native.outbound import DrainOut

_LOOK_S = 0.25


def drain(place: Place, *, notice_s: float, timeout_s: float) -> str:
    """What to say when nothing is under way any more. Raises ``Failed`` after ``timeout_s`` seconds."""
    ends_at = time.monotonic() + timeout_s
    pause = threading.Event()
    with Broker(place) as broker:
        shown = broker.read(DrainOut, broker.post(f"/api/drain?notice={notice_s:g}", b""))
        while shown.stage != "drained":
            if time.monotonic() >= ends_at:
                raise Failed(
                    f"{broker.url} is {shown.stage} after {timeout_s:g} s: "
                    f"{_work(shown.under_way)} under way",
                    "  what is not done when it stops is done by the others, or after its next start",
                    code=FAILED,
                )
            pause.wait(_LOOK_S)
            shown = broker.read(DrainOut, broker.get("/api/drain"))
        return f"{broker.url} is drained: nothing is under way"


def undo(place: Place) -> str:
    """Put a broker back into service. What to say of it."""
    with Broker(place) as broker:
        shown = broker.read(DrainOut, broker.delete("/api/drain"))
        return f"{broker.url} is {shown.stage}"


def _work(count: int) -> str:
    return f"{count} piece{'s' if count != 1 else ''} of work {'are' if count != 1 else 'is'}"
