"""For authors of agents: read a handoff, answer it, hand it on or not, send one.

``HandoffReceiver`` serves agents of any make. ``kit.executor`` wraps an agent built on a2a-sdk, and
``kit.client`` sends tasks to a broker; both import a2a-sdk, which is why they are not imported here.
"""

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.triggers import advise_task, should_handoff
from a2a_handoff.kit.directive import declined, handoff, in_metadata, ready, receipt, release
from a2a_handoff.kit.incoming import IncomingHandoff, read_incoming
from a2a_handoff.kit.receiver import Declined, HandoffReceiver, Ready

__all__ = [
    "EXTENSION_URI",
    "Declined",
    "HandoffReceiver",
    "IncomingHandoff",
    "Ready",
    "advise_task",
    "declined",
    "handoff",
    "in_metadata",
    "read_incoming",
    "ready",
    "receipt",
    "release",
    "should_handoff",
]
