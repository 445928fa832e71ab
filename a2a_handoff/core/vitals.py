"""How one agent is doing: heard from, loaded, quick, reliable.

Duty: the facts about an agent that change with every call, and the ``AgentView`` that follows from
them at one moment. Presence and the circuit breaker are judged when somebody looks, not by a sweep,
so nothing has to run for an agent to expire.
Rules: ``now`` is monotonic seconds and never goes back; ``last_heard_at`` is epoch seconds and only
for people to read.
Not here: who the agents are (``roster``, ``registry``).
"""

from __future__ import annotations

from a2a_handoff.core.agents import (
    PRESENCE_WINDOW_S,
    Agent,
    AgentView,
    Breaker,
    Readiness,
    Status,
    smoothed,
)
from a2a_handoff.core.events import Outcome

#: The agent did not answer: this opens the breaker.
_SILENT = frozenset({Outcome.TARGET_UNAVAILABLE, Outcome.TIMEOUT})

#: The agent did not do what it was given. Who declines, or is canceled, has not failed.
_FAILED = _SILENT | {Outcome.TARGET_FAILED, Outcome.TARGET_AUTH, Outcome.INVALID_RESPONSE}


#: An offer without an answer counts as an answer after this many seconds: who was silent once is asked
#: after others, before the breaker opens.
_SILENCE_S = 60.0

_EVER = float("inf")


class Vitals:
    """The changing facts of one agent. Mutable; whoever holds it calls it from one thread."""

    __slots__ = (
        "_breaker",
        "_channels",
        "_completed",
        "_elsewhere_at",
        "_failed",
        "_heard_at",
        "_last_heard_at",
        "_left",
        "_left_at",
        "_ours",
        "_presence_s",
        "_received",
        "_response_s",
        "_said",
        "_said_at",
        "_status",
        "_view",
        "_view_until",
    )

    def __init__(self, *, presence_s: float = PRESENCE_WINDOW_S, breaker: Breaker | None = None) -> None:
        self._presence_s = presence_s
        self._breaker = breaker or Breaker()
        self._status = Status.ONLINE
        self._heard_at: float | None = None
        self._last_heard_at = 0.0
        self._channels = 0
        self._left = False
        self._left_at = -_EVER
        self._ours = 0
        self._said = 0
        self._said_at = -_EVER
        self._elsewhere_at: float | None = None
        self._response_s: float | None = None
        self._received = 0
        self._completed = 0
        self._failed = 0
        self._view: AgentView | None = None
        self._view_until = 0.0

    # --- what happens to it ----------------------------------------------------------------------

    def heard(self, now: float, epoch: float) -> None:
        """It called, or answered. Who called itself offline is not any more."""
        self._heard_at, self._last_heard_at = now, epoch
        self._left = False
        if self._status is Status.OFFLINE:
            self._status = Status.ONLINE
        self._view = None

    def returned(self, now: float) -> None:
        """It registered (again): what it did not answer before is forgiven."""
        self._status, self._said, self._said_at = Status.ONLINE, 0, now
        self._breaker = self._breaker.succeeded()
        self._view = None

    def beat(self, now: float, status: Status, in_flight: int | None) -> None:
        """What it says of itself. ``in_flight`` counts its work from elsewhere too."""
        self._status = status
        self._said = in_flight or 0
        self._said_at = now
        self._view = None

    def heard_elsewhere(self, at: float, epoch: float, *, gone: bool) -> None:
        """Another broker heard from it last at a time; ``gone``: that it goes."""
        last = max(self._heard_at or -_EVER, self._elsewhere_at or -_EVER)
        if gone and at >= last:
            self._left, self._left_at = True, at
        elif not gone and at > self._left_at:
            self._left = False
            self._elsewhere_at = max(self._elsewhere_at or at, at)
            self._last_heard_at = max(self._last_heard_at, epoch)
        self._view = None

    def said_elsewhere(self, at: float, status: Status, in_flight: int) -> None:
        """What it told another broker of itself, unless it has told something since."""
        if at > self._said_at:
            self._status, self._said, self._said_at = status, in_flight, at
            self._view = None

    def said(self) -> tuple[float, Status, int]:
        """What it last said of itself, and when."""
        return self._said_at, self._status, self._said

    def opened(self) -> None:
        """It holds a socket, a stream or a long poll open."""
        self._channels += 1
        self._view = None

    def closed(self) -> int:
        """One of its channels is closed. How many are open yet."""
        self._channels -= 1
        self._view = None
        return self._channels

    def left(self, now: float) -> None:
        """It said that it goes. It is not there until it is heard from again, but for its other channels."""
        self._left, self._left_at = True, now
        self._view = None

    def held(self, count: int) -> None:
        """How many handoffs it was offered or holds, by the store."""
        self._ours = count
        self._view = None

    def offered(self, now: float) -> None:
        """It was offered a handoff."""
        self._ours += 1
        self._received += 1
        self._breaker = self._breaker.offered(now)
        self._view = None

    def acknowledged(self, response_s: float) -> None:
        """It said that it is ready, ``response_s`` seconds after the offer."""
        self._response_s = smoothed(self._response_s, max(response_s, 0.0))
        self._breaker = self._breaker.succeeded()
        self._view = None

    def ended(self, now: float, outcome: Outcome | None) -> None:
        """It is through with a handoff. ``None``: it did what was asked."""
        self._ours = max(self._ours - 1, 0)
        if outcome is None:
            self._completed += 1
        elif outcome in _FAILED:
            self._failed += 1
        if outcome in _SILENT:
            self._breaker = self._breaker.failed(now)
            self._response_s = smoothed(self._response_s, _SILENCE_S)
        elif outcome is None or outcome is Outcome.TARGET_REJECTED:
            self._breaker = self._breaker.succeeded()
        self._view = None

    @property
    def gone(self) -> bool:
        """Whether it said that it goes, and holds nothing open."""
        return self._left and not self._channels

    @property
    def idle(self) -> bool:
        """Whether nothing is out with it."""
        return not self._ours and not self._channels

    # --- how it stands ---------------------------------------------------------------------------

    def heard_at(self, now: float) -> float | None:
        """When it was last heard from: now, if it has a channel open; ``None`` if never."""
        if self._channels > 0:
            return now
        if self._heard_at is None or self._elsewhere_at is None:
            return self._elsewhere_at if self._heard_at is None else self._heard_at
        return max(self._heard_at, self._elsewhere_at)

    def heard_within(self, now: float, seconds: float) -> bool:
        """Whether it has a channel open, or was heard from at most ``seconds`` ago."""
        heard_at = self.heard_at(now)
        return heard_at is not None and now - heard_at <= seconds

    def view(self, agent: Agent, now: float) -> AgentView:
        """The agent at this moment. The same object as long as nothing changed and no time ran out."""
        view = self._view
        if view is not None and now < self._view_until and view.agent is agent:
            return view
        judged = agent.readiness in (Readiness.OFFER, Readiness.PROBE)
        broken = judged and self._breaker.open_at(now)
        present = not broken if judged else not self.gone and self.heard_within(now, self._presence_s)
        ended = self._completed + self._failed
        self._view = view = AgentView(
            agent=agent,
            status=self._status if present or judged else Status.OFFLINE,
            present=present,
            breaker_open=broken,
            in_flight=max(self._ours, self._said),
            response_s=self._response_s,
            success_rate=self._completed / ended if ended else 1.0,
            received=self._received,
            completed=self._completed,
            failed=self._failed,
            last_heard_at=self._last_heard_at,
        )
        if broken:
            self._view_until = self._breaker.tried_at + self._breaker.half_open_s
        elif judged or self._channels or not present:
            self._view_until = _EVER
        else:
            self._view_until = (self.heard_at(now) or 0.0) + self._presence_s
        return view
