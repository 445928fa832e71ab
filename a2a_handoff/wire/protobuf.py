"""A2A JSON to and from the protobuf messages that travel over gRPC.

Duty: the methods of both gRPC services; params out of a request, the request of a call, answers both ways.
Rules: what stands between is ProtoJSON, which is the JSON of HTTP+JSON in each generation, so all that is
known of that holds here. protobuf knows numbers as doubles only: whole ones are written as integers, as
far as a double counts exactly. Struct has no order, so members come sorted and the same content is the same
bytes. What protobuf cannot carry is refused, never changed. A large message is converted beside the event
loop: ten megabytes of small values take half a minute.
Sources: A2A 1.0 section 10 and ``a2a.proto``; ``a2a.proto`` of 0.3; the ProtoJSON specification.
Not here: calls, metadata and statuses (``transports.grpc``, ``client.grpc``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import msgspec
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError, SerializeToJsonError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Value
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.wire.envelope import too_many
from a2a_handoff.wire.methods import Operation
from a2a_handoff.wire.requests import fill
from a2a_handoff.wire.shapes import fields_of, pack

_T = TypeVar("_T")

#: Bytes that may be converted at once: 20 milliseconds at the worst.
_AT_ONCE_MAX: Final = 16_384
#: One thread, so that whoever sends much gets no more than a share, and the memory for one message.
_ASIDE: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="a2a-handoff-protobuf")

#: A double counts every whole number up to here.
_EXACT: Final = 2.0**53

#: What 0.3 calls differently; the other names are those of 1.0.
_NAMES_03: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "TaskSubscription": Operation.SUBSCRIBE,
        "ListTaskPushNotificationConfig": Operation.LIST_PUSH,
        "GetAgentCard": Operation.EXTENDED_CARD,
    }
)
#: Requests of 0.3 name what they are about by its path.
_TASK_NAME: Final = re.compile(
    r"tasks/(?P<id>.+?)(?:/pushNotificationConfigs(?:/(?P<config>.*))?)?", re.DOTALL
)

_sorted = msgspec.json.Encoder(order="sorted").encode


class Unwritable(Exception):
    """What protobuf cannot carry: nested too deep, two contents in one part, a number over a double."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """One method. ``path`` is that of its HTTP/2 request."""

    path: str
    generation: Generation
    operation: Operation
    request: type[Message]
    answer: type[Message]


def _rpcs(file: FileDescriptor, generation: Generation) -> list[Rpc]:
    service: Any = file.services_by_name["A2AService"]
    methods = cast("list[MethodDescriptor]", list(service.methods))
    return [
        Rpc(
            path=f"/{service.full_name}/{method.name}",
            generation=generation,
            operation=_NAMES_03.get(method.name) or Operation(method.name),
            request=GetMessageClass(method.input_type),
            answer=GetMessageClass(method.output_type),
        )
        for method in methods
    ]


#: Every method of both services by its path.
RPCS: Final[Mapping[str, Rpc]] = MappingProxyType(
    {
        rpc.path: rpc
        for rpc in (
            *_rpcs(a2a_pb2.DESCRIPTOR, Generation.V1_0),
            *_rpcs(a2a_v0_3_pb2.DESCRIPTOR, Generation.V0_3),
        )
    }
)
_BY_OPERATION: Final = {(rpc.generation, rpc.operation): rpc for rpc in RPCS.values()}


def rpc_of(generation: Generation, operation: Operation) -> Rpc:
    """The method of an operation."""
    return _BY_OPERATION[generation, operation]


# --- requests ------------------------------------------------------------------------------------


def params_of(rpc: Rpc, body: bytes, values_max: int | None = None) -> Raw:
    """The params of a request, as those of HTTP+JSON, with what stands in its path there.

    Raises ``HandoffError``: ``invalid_params`` if the bytes are not the message of the method,
    ``payload_too_large`` if there are more than ``values_max`` values in it.
    """
    try:
        params = Raw(json_of(rpc.request, body, values_max))
    except Unwritable as fault:
        raise HandoffError(Code.INVALID_PARAMS, str(fault)) from None
    return _unnamed(rpc, params) if rpc.generation is Generation.V0_3 else params


def _unnamed(rpc: Rpc, params: Raw) -> Raw:
    """With the ids out of the name or parent of a request of 0.3.

    A message without content has none, instead of nothing: by it the shape of the proto is known.
    """
    fields = msgspec.json.decode(params, type=dict[str, Raw])
    if "message" in fields:
        return Raw(pack(fields | {"message": {"content": []} | fields_of(fields["message"])}))
    for holder in ("name", "parent"):
        if holder not in rpc.request.DESCRIPTOR.fields_by_name:
            continue
        name = msgspec.json.decode(fields.get(holder, b'""'), type=str)
        match = _TASK_NAME.fullmatch(name)
        if match is None:
            shape = "must begin with tasks/ and the id of a task"
            raise HandoffError(
                Code.INVALID_PARAMS,
                f"Invalid parameters: {holder} {shape}.",
                violations=(Violation(holder, shape),),
            )
        members = {"id": match["id"], "taskId": match["id"]}
        if match["config"]:
            members["pushNotificationConfigId"] = match["config"]
        return fill(params, **members)
    return params


# --- large messages ------------------------------------------------------------------------------


async def aside(convert: Callable[[bytes], _T], body: bytes) -> _T:
    """What ``convert`` makes of ``body``; if that is large, nobody else waits for it but other large ones."""
    if len(body) <= _AT_ONCE_MAX:
        return convert(body)
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, convert, body)


# --- both ways -----------------------------------------------------------------------------------


def json_of(kind: type[Message], body: bytes, values_max: int | None = None) -> bytes:
    """The JSON of a message.

    Raises ``Unwritable`` if it is none of that kind, or has no JSON, and ``HandoffError``
    (``payload_too_large``) if there are more than ``values_max`` values in it.
    """
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise Unwritable(f"The bytes are not a {kind.DESCRIPTOR.full_name}, or nested too deep.") from None
    # The smallest value has two bytes.
    if values_max is not None and len(body) > 2 * values_max:
        _vet_count(message, values_max)
    try:
        return _sorted(_whole(MessageToDict(message)))
    except (SerializeToJsonError, ValueError):
        raise Unwritable("A number is not finite, or a time out of range, which JSON cannot say.") from None


def _vet_count(message: Message, values_max: int) -> None:
    """How many values there are, before each of them costs microseconds. Looks at no more than it allows."""
    left = values_max
    waiting = [message]
    while waiting:
        holder = waiting.pop()
        for _, value in holder.ListFields():
            if isinstance(value, Message):
                waiting.append(value)
            if isinstance(value, Message | str | bytes | int | float):
                left -= not isinstance(holder, Value)  # counted where it stands in its list or struct
            else:
                left -= len(value)
                inner = cast("Mapping[str, object]", value).values() if isinstance(value, Mapping) else value
                if left >= 0:
                    waiting += (each for each in cast("Iterable[object]", inner) if isinstance(each, Message))
            if left < 0:
                raise too_many(values_max)


def protobuf_of(kind: type[Message], body: bytes) -> bytes:
    """JSON as a message; members that the message does not have are left out. Raises ``Unwritable``."""
    message = kind()
    try:
        ParseDict(msgspec.json.decode(body), message, ignore_unknown_fields=True)
        written = message.SerializeToString()
        # Readers stop at 100 messages inside each other, writers do not.
        kind().ParseFromString(written)
    except (ParseError, DecodeError, EncodeError, ValueError, TypeError, OverflowError, RecursionError):
        raise Unwritable(
            "There is something that protobuf cannot carry: more than about 30 objects inside each other, "
            "a part with two contents, or a number that is no double."
        ) from None
    return written


def _whole(value: Any) -> Any:
    """With whole numbers as integers: a Struct has doubles only, and 1 is written as 1 by people."""
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
