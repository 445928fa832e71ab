"""How a listing by state is divided into searches, the same for every database.

Rules: nearly all handoffs of a long history have ended well. Those that are open, and those that ended
without a result, have small indexes of their own and are looked for there; one that has completed is found
wherever a search begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from a2a_handoff.core.events import State

#: The states of the index ``handoffs_without_result`` (``migrations``).
WITHOUT_RESULT = (State.CANCELED, State.EXPIRED, State.FAILED, State.RETURNED)


class Part(NamedTuple):
    """One search: rows in ``states`` (empty: in any), which all are ``among`` the rows of an index."""

    states: tuple[State, ...] = ()
    among: Literal["all", "open", "without result"] = "all"


def parts(states: Iterable[State]) -> list[Part]:
    """The searches whose rows together are those in ``states``. No row is in two of them."""
    wanted = sorted(states)
    if not wanted or State.COMPLETED in wanted:
        return [Part(tuple(wanted))]
    going_on = tuple(state for state in wanted if not state.terminal)
    found = [Part(going_on, "open")] if going_on else []
    # One state each: then the index gives the rows in the order of a listing.
    return found + [Part((state,), "without result") for state in WITHOUT_RESULT if state in wanted]
