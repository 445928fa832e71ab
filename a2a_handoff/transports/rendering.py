"""A2A answers as bytes, for every binding and generation that travels over HTTP.

Duty: run an operation and write its result; write a stream's events.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.transports.asgi import Send, answer
from a2a_handoff.transports.operations import Asker, Operations, Told
from a2a_handoff.wire import faults
from a2a_handoff.wire.envelope import answer as rpc_answer
from a2a_handoff.wire.push import deleted_json, push_json, push_list_json
from a2a_handoff.wire.requests import (
    CancelParams,
    CardParams,
    GetParams,
    ListParams,
    Operation,
    Params,
    PushParams,
    SendParams,
    page_token,
)
from a2a_handoff.wire.tasks import StreamWriter, list_json, sse, task_result

_LOG = logging.getLogger("a2a_handoff.transports")


async def result_of(
    operations: Operations, asker: Asker, operation: Operation, params: Params, generation: Generation
) -> bytes:
    """The result of one operation that does not stream, as JSON."""
    match params:
        case SendParams():
            view = await operations.send(asker, params)
            return task_result(view, generation, history_length=params.history_length, sent=True)
        case GetParams():
            view = await operations.get(asker, params)
            return task_result(view, generation, history_length=params.history_length)
        case CancelParams():
            return task_result(await operations.cancel(asker, params), generation)
        case ListParams():
            page = await operations.list(asker, params)
            return list_json(
                page.tasks,
                generation,
                next_page_token=page_token(page.next),
                page_size=page.page_size,
                total_size=page.total,
                history_length=params.history_length,
            )
        case PushParams():
            return await _push_result(operations, asker, operation, params, generation)
        case CardParams():
            return operations.extended_card(asker)
        case _:
            raise HandoffError(Code.INTERNAL)


async def _push_result(
    operations: Operations, asker: Asker, operation: Operation, params: PushParams, generation: Generation
) -> bytes:
    match operation:
        case Operation.SET_PUSH:
            return push_json(await operations.set_push(asker, params), generation)
        case Operation.GET_PUSH:
            return push_json(await operations.get_push(asker, params), generation)
        case Operation.LIST_PUSH:
            return push_list_json(await operations.list_push(asker, params), generation)
        case _:
            await operations.delete_push(asker, params)
            return deleted_json(generation)


async def events_of(
    events: Told,
    generation: Generation,
    request_id: bytes | None,
    *,
    shaped: Callable[[bytes], bytes] | None = None,
) -> AsyncGenerator[bytes | None]:
    """Server-sent events: JSON-RPC answers under ``request_id``, bare without one.

    Those that come together are written together. ``shaped`` writes an event anew for a binding that has a
    shape of its own. Headers are gone by now,
    so a fault is one more event (A2A 1.0 section 9.4.2).
    """
    writer = StreamWriter(generation)
    try:
        async for together in events:
            if together is None:
                yield None
                continue
            bodies: Iterable[bytes] = [body for event in together for body in writer.write(event)]
            if shaped is not None:
                bodies = map(shaped, bodies)
            if request_id is not None:
                bodies = [rpc_answer(request_id, body) for body in bodies]
            yield b"".join(map(sse, bodies))
    except Exception as fault:  # noqa: BLE001 - the answer has begun; there is no other place to say it
        error = refusal_of(fault)
        if request_id is None:
            yield sse(faults.a2a_http(error, generation).body)
        else:
            yield sse(faults.jsonrpc(error, generation, request_id).body)
    finally:
        await events.aclose()


def refusal_of(fault: Exception) -> HandoffError:
    """What the caller is told of a request that failed. What is nobody's fault but ours is logged."""
    if isinstance(fault, HandoffError):
        return fault
    if isinstance(fault, StoreUnavailable):
        _LOG.warning("a request failed: %s", fault)
        return HandoffError(
            Code.UNAVAILABLE, "The broker cannot read its store now. Try again.", retry_after_s=1.0
        )
    _LOG.error("a request failed", exc_info=fault)
    return HandoffError(Code.INTERNAL)


async def refuse(send: Send, refusal: faults.Refusal) -> None:
    """Answer with an error."""
    await answer(
        send,
        refusal.status,
        refusal.body,
        content_type=refusal.media_type.encode(),
        headers=[(name.lower().encode(), value.encode()) for name, value in refusal.headers],
    )
