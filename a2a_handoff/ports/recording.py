"""What was committed, for spans and metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports.store import Recorded


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The committed change of one handoff: the states around its new events.

    ``new_chain``: the handoff started its chain with this commit.
    """

    before: Handoff | None
    after: Handoff
    recorded: tuple[Recorded, ...]
    new_chain: bool = False


class Notified(StrEnum):
    """What became of one try to notify a webhook."""

    TAKEN = "taken"
    FAILED = "failed"
    """It is tried again."""
    GIVEN_UP = "given_up"
    """It is not, and neither is what follows."""
    REMOVED = "removed"
    """The webhook said that it is gone."""


class Recorder(Protocol):
    """Makes spans and metrics of what was committed, off the path of the request."""

    def record(self, change: Change) -> None:
        """Note a change. Never blocks, never fails; what cannot be kept is counted as dropped."""
        ...

    def notified(self, result: Notified) -> None:
        """Note what became of a notification. Never blocks, never fails."""
        ...
