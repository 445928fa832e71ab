"""Every seam of the broker.

The service sees the world only through these protocols. Adapters stand above the service
(``stores``, ``notify``, ``client``, ``security``) and are put in by ``app``.

- ``time``: time and chance, as the service sees them.
- ``store``: the store: durable truth, and what is written to it and read from it.
- ``shared``: a store that several brokers share: who is there, and what goes from one to the other.
- ``notices``: wake-ups, which are hints, and the log for programs elsewhere.
- ``recording``: what was committed, for spans and metrics.
- ``outbound``: agents, cards and webhooks out there, and the policy on addresses.
- ``context``: what counts and judges contexts.
- ``callers``: who calls, and what they may do.
"""

from __future__ import annotations

from a2a_handoff.ports.callers import ANONYMOUS, USUAL_SCOPES, Gate, Principal, Scope
from a2a_handoff.ports.context import ContextJudge, TokenCounter
from a2a_handoff.ports.notices import (
    Appended,
    Entry,
    EventStream,
    Hints,
    Listener,
    Notifier,
    StreamEnd,
    StreamUnavailable,
)
from a2a_handoff.ports.outbound import (
    AgentClient,
    AgentError,
    Callback,
    CardFetcher,
    CardVerifier,
    Delivery,
    FetchedCard,
    HookAnswer,
    HookClient,
    RemoteState,
    Sent,
    Update,
    UrlPolicy,
)
from a2a_handoff.ports.recording import Change, Notified, Recorder
from a2a_handoff.ports.shared import AgentChanges, Departed, Ends, SharedStore, Sign
from a2a_handoff.ports.store import (
    PAGE_BYTES,
    SECRET_BYTES,
    TOTAL_MAX,
    Broadcast,
    BroadcastPage,
    Chain,
    ChainTaken,
    Commit,
    Committed,
    DuplicateRequest,
    HandoffPage,
    HandoffQuery,
    HandoffWrite,
    Late,
    Recorded,
    RequestKey,
    Slot,
    SlotConflict,
    Store,
    StoreUnavailable,
    Usage,
    VersionConflict,
    Webhook,
    WebhookState,
    Work,
    WorkKey,
)
from a2a_handoff.ports.time import Clock

__all__ = [
    "ANONYMOUS",
    "PAGE_BYTES",
    "SECRET_BYTES",
    "TOTAL_MAX",
    "USUAL_SCOPES",
    "AgentChanges",
    "AgentClient",
    "AgentError",
    "Appended",
    "Broadcast",
    "BroadcastPage",
    "Callback",
    "CardFetcher",
    "CardVerifier",
    "Chain",
    "ChainTaken",
    "Change",
    "Clock",
    "Commit",
    "Committed",
    "ContextJudge",
    "Delivery",
    "Departed",
    "DuplicateRequest",
    "Ends",
    "Entry",
    "EventStream",
    "FetchedCard",
    "Gate",
    "HandoffPage",
    "HandoffQuery",
    "HandoffWrite",
    "Hints",
    "HookAnswer",
    "HookClient",
    "Late",
    "Listener",
    "Notified",
    "Notifier",
    "Principal",
    "Recorded",
    "Recorder",
    "RemoteState",
    "RequestKey",
    "Scope",
    "Sent",
    "SharedStore",
    "Sign",
    "Slot",
    "SlotConflict",
    "Store",
    "StoreUnavailable",
    "StreamEnd",
    "StreamUnavailable",
    "TokenCounter",
    "Update",
    "UrlPolicy",
    "Usage",
    "VersionConflict",
    "Webhook",
    "WebhookState",
    "Work",
    "WorkKey",
]
