"""The numbers that one handoff lives by, frozen into it when it is requested.

A restart with other settings does not change the rules of a handoff that is under way.
"""

from __future__ import annotations

import msgspec

MAX_HOPS_CAP = 5

#: So many messages one handoff takes from its caller, and so many handoffs its target may make. They are
#: part of its state, which is written with every event.
REPLIES_MAX = 1_000
CHILDREN_MAX = 1_000


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one handoff. All times are seconds.

    ``deliveries`` is how often one agent is asked within its attempt: the first time and the
    retries. ``agents`` is how many agents are tried before the handoff goes back.
    """

    ack_wait_s: float = 5.0
    retry_delay_s: float = 2.0
    retry_backoff: float = 2.0
    retry_delay_max_s: float = 60.0
    deliveries: int = 2
    agents: int = 3
    pull_ack_wait_s: float = 30.0
    wait_for_agent_s: float = 300.0
    cancel_wait_s: float = 10.0
    lease_s: float = 1800.0
    lost_after_s: float = 90.0
    reconcile_every_s: float = 30.0
    max_hops: int = MAX_HOPS_CAP

    def retry_delay(self, retries: int, jitter: float) -> float:
        """Seconds to wait before retry number ``retries`` (from 1).

        ``jitter`` is in [0, 1); it lengthens the delay by up to a tenth, never shortens it.
        """
        delay = self.retry_delay_s * self.retry_backoff ** (retries - 1)
        return min(delay, self.retry_delay_max_s) * (1 + 0.1 * jitter)
