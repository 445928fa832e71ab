"""Which generation a caller speaks, and which operation a method is.

Duty: negotiate the version; one table from method names to operations.
Sources: A2A 1.0 sections 3.6, 5.3 and 9.4; the 0.3 schema; ``a2a.json`` of 0.1.
Not here: params (``requests``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError

_V1_0, _V0_3, _V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1


class Operation(StrEnum):
    """What can be asked for, under its name of A2A 1.0 (section 5.3)."""

    SEND = "SendMessage"
    STREAM = "SendStreamingMessage"
    GET = "GetTask"
    LIST = "ListTasks"
    CANCEL = "CancelTask"
    SUBSCRIBE = "SubscribeToTask"
    SET_PUSH = "CreateTaskPushNotificationConfig"
    GET_PUSH = "GetTaskPushNotificationConfig"
    LIST_PUSH = "ListTaskPushNotificationConfigs"
    DELETE_PUSH = "DeleteTaskPushNotificationConfig"
    EXTENDED_CARD = "GetExtendedAgentCard"

    @property
    def streams(self) -> bool:
        """Whether it is answered with server-sent events."""
        return self in (Operation.STREAM, Operation.SUBSCRIBE)


#: The methods of each generation. 0.3 lists tasks over HTTP only; the name is taken for JSON-RPC too.
METHODS: Final[Mapping[tuple[Generation, str], Operation]] = MappingProxyType(
    {(_V1_0, operation.value): operation for operation in Operation}
    | {
        (_V0_3, "message/send"): Operation.SEND,
        (_V0_3, "message/stream"): Operation.STREAM,
        (_V0_3, "tasks/get"): Operation.GET,
        (_V0_3, "tasks/list"): Operation.LIST,
        (_V0_3, "tasks/cancel"): Operation.CANCEL,
        (_V0_3, "tasks/resubscribe"): Operation.SUBSCRIBE,
        (_V0_3, "tasks/pushNotificationConfig/set"): Operation.SET_PUSH,
        (_V0_3, "tasks/pushNotificationConfig/get"): Operation.GET_PUSH,
        (_V0_3, "tasks/pushNotificationConfig/list"): Operation.LIST_PUSH,
        (_V0_3, "tasks/pushNotificationConfig/delete"): Operation.DELETE_PUSH,
        (_V0_3, "agent/getAuthenticatedExtendedCard"): Operation.EXTENDED_CARD,
        (_V0_1, "tasks/send"): Operation.SEND,
        (_V0_1, "tasks/sendSubscribe"): Operation.STREAM,
        (_V0_1, "tasks/get"): Operation.GET,
        (_V0_1, "tasks/cancel"): Operation.CANCEL,
        (_V0_1, "tasks/resubscribe"): Operation.SUBSCRIBE,
        (_V0_1, "tasks/pushNotification/set"): Operation.SET_PUSH,
        (_V0_1, "tasks/pushNotification/get"): Operation.GET_PUSH,
    }
)

#: Methods of both older generations, with the same params. Only the task's id tells which is meant: one
#: that its client made belongs to the first generation.
SHARED_METHODS: Final = frozenset(
    method for generation, method in METHODS if generation is _V0_1 and (_V0_3, method) in METHODS
)

_VERSIONS: Final[Mapping[str, Generation]] = MappingProxyType({"": _V0_3, "1.0": _V1_0, "0.3": _V0_3})
_VERSION: Final = re.compile(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)?", re.ASCII)


def negotiate(header: str | None, query: str | None) -> Generation:
    """The generation that ``A2A-Version`` names, in the header or else in the query (section 3.6).

    Empty means 0.3, and a patch number does not count.

    Raises ``HandoffError`` (``version_not_supported``) for any other version.
    """
    named = (header or "").strip() or (query or "").strip()
    match = _VERSION.fullmatch(named)
    generation = _VERSIONS.get(match[1] if match else named)
    if generation is None:
        raise HandoffError(
            Code.VERSION_NOT_SUPPORTED,
            f"Version {named[:32]!r} is not spoken here. Send A2A-Version 1.0 or 0.3.",
            facts={"requestedVersion": named[:32], "supportedVersions": "1.0, 0.3"},
        )
    return generation


def resolve(method: str, negotiated: Generation) -> tuple[Operation, Generation]:
    """The operation behind a method, and the generation that it is a method of.

    The first generation has no version header, so its methods are found under 0.3 too.

    Raises ``HandoffError``: ``version_not_supported`` for a method of another version than the one
    that the caller names, ``method_not_found`` for no method at all.
    """
    generations = (_V1_0,) if negotiated is _V1_0 else (negotiated, _V0_1)
    for generation in generations:
        operation = METHODS.get((generation, method))
        if operation is not None:
            return operation, generation
    other = next((generation for generation in Generation if (generation, method) in METHODS), None)
    if other is None:
        raise HandoffError(Code.METHOD_NOT_FOUND, f"There is no method {method[:64]!r}.")
    needs = "A2A-Version: 1.0" if other is _V1_0 else "no A2A-Version, or 0.3"
    raise HandoffError(
        Code.VERSION_NOT_SUPPORTED,
        f"{method} is a method of A2A {other}: send it with {needs}.",
        facts={"requestedVersion": negotiated.value, "supportedVersions": other.value},
    )
