"""What the native surfaces ask of the service, whatever carries the call: HTTP, a WebSocket.

Duty: from a body to a new handoff or to the next step of one, and the handoff as it is shown.
Rules: a call means the same on every surface, and is refused with the same words.
Not here: how a call arrives and how its answer leaves (``rest``, ``live``, ``websocket``).
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

import msgspec
from msgspec.structs import replace

from a2a_handoff.broker import Accepted, Claim, HandoffBroker
from a2a_handoff.config import Settings
from a2a_handoff.core.events import Output, OutputKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.text import NAME_CHARS_MAX
from a2a_handoff.intake import Call, Incoming
from a2a_handoff.ports import Principal
from a2a_handoff.wire import native
from a2a_handoff.wire.content import digest_of
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.context_reader import Overdue
from a2a_handoff.wire.members import checked_id
from a2a_handoff.wire.native import views
from a2a_handoff.wire.projection import artifact_id

#: What may be done with a handoff.
Verb = Literal["accept", "decline", "progress", "complete", "fail", "release", "cancel"]

#: Fields that are not known are warned of, as many as these.
_UNKNOWN_MAX = 20


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a surface knows of a new handoff beside its body.

    ``key`` makes the request idempotent. The trace headers are those of the request.
    """

    surface: str
    method: str
    route: str
    key: str = ""
    traceparent: str = ""
    tracestate: str = ""


class _Named(msgspec.Struct):
    """What of a message says which extensions it carries."""

    extensions: list[str] | None = None


_named = msgspec.json.Decoder(_Named)


class NativeCalls:
    """Asks the service on behalf of the native surfaces."""

    def __init__(self, broker: HandoffBroker, *, settings: Settings) -> None:
        self._broker = broker
        self._settings = settings

    # --- new handoffs ----------------------------------------------------------------------------

    async def create(self, principal: Principal, body: native.HandoffIn, origin: Origin) -> Accepted:
        """Hand a task off. Raises what ``HandoffBroker.send`` raises."""
        return await self._broker.send(principal, self.incoming(body, origin))

    def incoming(self, body: native.HandoffIn, origin: Origin) -> Incoming:
        """A body as the service takes it. Raises ``HandoffError`` for what is wrong with it."""
        now = self._broker.now()
        key = checked_id(origin.key, "Idempotency-Key")
        message_id = checked_id(body.message_id, "message_id") or key
        message_id = message_id or body.own_message_id or self._broker.new_id()
        message = body.message_json(message_id)
        refusal = None
        try:
            package = read_context(body.handoff_context(), path="", now=now)
        except Overdue as late:
            package, refusal = late.package, late
        unknown = (f"{name[:NAME_CHARS_MAX]}: not known, ignored" for name in body.unknown_fields)
        package = replace(package, warnings=(*package.warnings, *islice(unknown, _UNKNOWN_MAX)))
        return Incoming(
            message=message,
            message_id=message_id,
            package=package,
            arrival=Call(method=origin.method, route=origin.route, started_at=now),
            digest=digest_of(message, body.handoff_context()),
            traceparent=origin.traceparent,
            tracestate=origin.tracestate,
            context_id=checked_id(body.context_id, "context_id"),
            key=key,
            metadata=msgspec.json.encode({"handoff_context": msgspec.Raw(body.handoff_context())}),
            extensions=tuple(_named.decode(message).extensions or ()),
            surface=origin.surface,
            workspace=body.workspace,
            refusal=refusal,
            context_at="",
        )

    # --- the next step of one --------------------------------------------------------------------

    async def act(
        self,
        principal: Principal,
        verb: Verb,
        handoff_id: str,
        body: native.ActionIn,
        *,
        versions: frozenset[int] = frozenset(),
    ) -> Handoff:
        """Accept, decline and all that follows. ``versions`` as in ``Claim``.

        Raises what the method of ``HandoffBroker`` with that name raises.
        """
        broker = self._broker
        claim = Claim(
            agent_id=body.agent_id, attempt=body.attempt, instance_id=body.instance_id, versions=versions
        )
        match verb:
            case "accept":
                return await broker.accept(principal, handoff_id, claim, receipt=bytes(body.receipt or b""))
            case "decline":
                return await broker.decline(principal, handoff_id, claim, body.reason)
            case "progress":
                return await self._progress(principal, handoff_id, claim, body)
            case "complete":
                return await broker.complete(
                    principal,
                    handoff_id,
                    claim,
                    message=body.message_json(broker.new_id()),
                    outputs=_outputs(body, handoff_id),
                )
            case "fail":
                return await broker.fail(principal, handoff_id, claim, body.reason)
            case "release":
                return await broker.release(principal, handoff_id, claim, body.reason)
            case "cancel":
                return await broker.cancel(principal, handoff_id, body.reason, versions=versions)

    async def _progress(
        self, principal: Principal, handoff_id: str, claim: Claim, body: native.ActionIn
    ) -> Handoff:
        """What there is so far, or a question to the caller."""
        message = body.message_json(self._broker.new_id())
        outputs = _outputs(body, handoff_id)
        if body.state == "working":
            said = (Output(kind=OutputKind.STATUS, body=message),) if message else ()
            return await self._broker.progress(principal, handoff_id, claim, (*outputs, *said))
        return await self._broker.ask(
            principal,
            handoff_id,
            claim,
            auth=body.state == "auth_required",
            message=message,
            outputs=outputs,
        )

    # --- how it is shown -------------------------------------------------------------------------

    async def out(self, handoff: Handoff, *, to_holder: bool = False) -> native.HandoffOut:
        """A handoff and what came of it. ``to_holder``: with the context as its target gets it."""
        first = await self._broker.journal.request_of(handoff.id)
        view = await self._broker.journal.view(handoff)
        return views.handoff_out(
            handoff,
            first,
            trace_url=self.trace_url(handoff),
            tokenizer=self._broker.tokenizer,
            status_message=view.status_message,
            artifacts=view.artifacts,
            package=await self._broker.package_of(handoff) if to_holder else b"",
        )

    def trace_url(self, handoff: Handoff) -> str:
        """Where the trace of a handoff is shown, empty if nowhere."""
        return self._settings.trace_url(handoff.trace.trace_id)


def _outputs(body: native.ActionIn, handoff_id: str) -> tuple[Output, ...]:
    return tuple(
        Output(kind=OutputKind.ARTIFACT, body=artifact, artifact_id=artifact_id(artifact))
        for artifact in body.artifact_jsons(f"{handoff_id}-result")
    )
