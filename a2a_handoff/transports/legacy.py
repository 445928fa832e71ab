"""The first generation over plain HTTP: ``POST /tasks/send`` and its siblings.

Duty: bodies that are bare params or a JSON-RPC envelope, answered in kind.
Sources: the specification of A2A 0.1 for the shapes; the paths are a house convention of early servers.
Not here: its JSON-RPC methods on the card's address, which ``a2a`` answers by the same table.
"""

from __future__ import annotations

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.intake import Call as Arrival
from a2a_handoff.ports import Clock, Gate
from a2a_handoff.security.principals import within
from a2a_handoff.telemetry import Served, Telemetry
from a2a_handoff.transports.asgi import (
    Bounds,
    ClientGone,
    Receive,
    Scope,
    Send,
    activated,
    answer,
    departure,
    headers_of,
    named_extensions,
    read_body,
    stream,
    tenant_of,
    text_header,
)
from a2a_handoff.transports.operations import Asker, Operations
from a2a_handoff.transports.rendering import events_of, refusal_of, refuse, result_of
from a2a_handoff.wire import faults
from a2a_handoff.wire.envelope import NO_ID, EnvelopeError
from a2a_handoff.wire.envelope import answer as rpc_answer
from a2a_handoff.wire.requests import METHODS, Operation, open_first_generation, read_params

_V01 = Generation.V0_1

#: Path below ``/tasks/`` -> method.
PATHS = {
    "/tasks/send": "tasks/send",
    "/tasks/sendSubscribe": "tasks/sendSubscribe",
    "/tasks/get": "tasks/get",
    "/tasks/cancel": "tasks/cancel",
    "/tasks/resubscribe": "tasks/resubscribe",
    "/tasks/pushNotification/set": "tasks/pushNotification/set",
    "/tasks/pushNotification/get": "tasks/pushNotification/get",
}


class LegacySurface:
    """Answers the first generation's paths."""

    def __init__(
        self, operations: Operations, *, gate: Gate, telemetry: Telemetry, clock: Clock, bounds: Bounds
    ) -> None:
        self._ops = operations
        self._gate = gate
        self._telemetry = telemetry
        self._clock = clock
        self._bounds = bounds

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, *, path: str, face: str = ""
    ) -> None:
        """One request to one of ``PATHS``."""
        started_at = self._clock.now()
        headers = headers_of(scope)
        method = PATHS[path]
        bare, request_id, left, status = True, NO_ID, False, 200
        asker: Asker | None = None
        operation = METHODS[_V01, method]
        try:
            body = await read_body(receive, headers, self._bounds.size)
            call, bare = open_first_generation(body, method, self._bounds.values)
            request_id = call.id
            caller = await self._gate.admit(text_header(headers, b"authorization"))
            caller = within(caller, tenant_of(scope))
            if not bare and call.method != method:
                raise HandoffError(
                    Code.INVALID_REQUEST, f"{call.method[:64]!r} does not belong at this path; {method} does."
                )
            params = read_params(operation, _V01, call.params)
            asker = Asker(
                principal=caller,
                generation=_V01,
                call=Arrival(
                    route=path, rpc_method=method, protocol_version=_V01.value, started_at=started_at
                ),
                surface="a2a-0.1-http",
                face=face,
                traceparent=text_header(headers, b"traceparent"),
                tracestate=text_header(headers, b"tracestate"),
                extensions=named_extensions(headers),
                key=text_header(headers, b"idempotency-key"),
                gone=departure(receive),
            )
            if operation in (Operation.STREAM, Operation.SUBSCRIBE):
                with self._ops.held(asker):
                    events = await self._ops.open(asker, params)
                    written = events_of(events, _V01, None if bare else request_id)
                    left = not await stream(receive, send, written, headers=activated(asker.extensions))
                return
            result = await result_of(self._ops, asker, operation, params, _V01)
            body = result if bare else rpc_answer(request_id, result)
            await answer(send, 200, body, headers=activated(asker.extensions))
        except ClientGone:
            left = True
        except HandoffError as error:
            if isinstance(error, EnvelopeError):
                request_id, bare = error.request_id, False
            status = await self._refuse(send, error, None if bare else request_id, operation, asker)
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered in the caller's protocol
            error = refusal_of(fault)
            status = await self._refuse(send, error, None if bare else request_id, operation, asker)
        finally:
            self._telemetry.request_span(
                Served(
                    started_at=started_at,
                    ended_at=self._clock.now(),
                    method="POST",
                    route=path,
                    status=status,
                    rpc_method=method,
                    protocol_version=_V01.value,
                    task_id="" if asker is None else asker.task_id,
                    traceparent=asker.traceparent if asker is not None and asker.principal.trusted else "",
                    outcome="client_disconnect" if left else "",
                    committed=asker is not None and asker.committed,
                )
            )

    async def _refuse(
        self,
        send: Send,
        error: HandoffError,
        request_id: bytes | None,
        operation: Operation,
        asker: Asker | None,
    ) -> int:
        """Answer with an error, in an envelope if the request had one. Gives the status."""
        refusal = (
            faults.a2a_http(error, _V01) if request_id is None else faults.jsonrpc(error, _V01, request_id)
        )
        if asker is not None and operation in (Operation.SEND, Operation.STREAM):
            principal = asker.principal
            self._telemetry.rejected(error.code, tenant=principal.tenant, sender=principal.name)
        await refuse(send, refusal)
        return refusal.status
