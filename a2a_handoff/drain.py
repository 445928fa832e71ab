"""Taking a broker out of service without stopping it, and back.

Duty: one broker's way out, in steps that an operator can see. It says that it is not ready and goes on as
always until whatever spreads calls has noticed. Then it takes no new task, lets go who waits, and ends what
it has begun.
Rules: what is refused before the proxy has noticed would be an error for nothing, so nothing is. What is
let go is cut as by a stop, and callers come back with the same cursor or message id. Work that follows from
what still runs is put back for the other brokers; a broker that is alone does it after ``undo`` or its next
start.
Not here: the end of the process (``server``).
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from a2a_handoff.bulletin import Bulletin
from a2a_handoff.dispatcher import Dispatcher
from a2a_handoff.inbox import Inbox
from a2a_handoff.journal import Journal
from a2a_handoff.ports import Notifier
from a2a_handoff.rollcall import RollCall

_LOG = logging.getLogger("a2a_handoff.drain")
NOTICE_MAX_S = 300.0


class Stage(StrEnum):
    """How far a broker is on its way out."""

    SERVING = "serving"
    """It takes part."""
    LEAVING = "leaving"
    """It is not ready any more, and does everything as before."""
    DRAINING = "draining"
    """It takes nothing new; something that it began goes on."""
    DRAINED = "drained"
    """Nothing is under way: it may be stopped, and nobody notices."""


class Drain:
    """One broker's way out. For the event loop."""

    def __init__(
        self,
        *,
        journal: Journal,
        inbox: Inbox,
        rollcall: RollCall,
        bulletin: Bulletin,
        dispatcher: Dispatcher,
        notifier: Notifier,
    ) -> None:
        self._waited_at = (journal, inbox, rollcall, bulletin)
        self._dispatcher = dispatcher
        self._notifier = notifier
        self._notice: asyncio.TimerHandle | None = None
        self._begun = self._let_go = self._stopping = False

    @property
    def begun(self) -> bool:
        """Whether it is on its way out."""
        return self._begun

    @property
    def under_way(self) -> int:
        """How many pieces of work it is at: offers, deliveries, streams of agents, webhooks."""
        return self._dispatcher.running

    @property
    def stage(self) -> Stage:
        """How far it is."""
        if not self._begun:
            return Stage.SERVING
        if not self._let_go:
            return Stage.LEAVING
        return Stage.DRAINING if self.under_way else Stage.DRAINED

    def begin(self, *, notice_s: float) -> None:
        """Leave: not ready from now on, nothing new after ``notice_s`` seconds. Again: changes nothing."""
        if self._begun:
            return
        self._begun = True
        _LOG.info("draining: not ready from now on, nothing new in %g s", notice_s)
        self._notice = asyncio.get_running_loop().call_later(notice_s, self._take_nothing)

    def undo(self) -> None:
        """Take part again, unless the process is stopping."""
        if not self._begun or self._stopping:
            return
        if self._notice is not None:
            self._notice.cancel()
        self._begun = self._let_go = False
        self._close(closing=False)
        self._dispatcher.resume()
        _LOG.info("drained no more: takes part again")

    def stop(self) -> None:
        """The process stops: refuse new work and let those who wait go; what runs goes on."""
        self._stopping = True
        self._close(closing=True)

    def _take_nothing(self) -> None:
        self._let_go = True
        self._dispatcher.pause()
        self._close(closing=True)
        _LOG.info("draining: nothing new is taken, %d pieces of work go on", self.under_way)

    def _close(self, *, closing: bool) -> None:
        for place in self._waited_at:
            place.closing = closing
        self._notifier.wake_all()


__all__ = ["NOTICE_MAX_S", "Drain", "Stage"]
