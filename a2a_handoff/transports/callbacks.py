"""Where agents call about the tasks that they were given.

Duty: let in whoever has the token of an attempt, read the notification, answer.
Rules: a wrong token, none, an attempt that never was and one that is forgotten look the same. The token may
come in the header of A2A or as a bearer token. It is looked at before the body is.
Sources: A2A 1.0 sections 4.3.3 and 13.2; RFC 6750 section 2.1.
Not here: what a notification means (``hearing``), tokens (``callbacks``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from a2a_handoff.callbacks import Callbacks
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.tracing import SpanRef
from a2a_handoff.hearing import Hearing
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.transports.asgi import Bounds
from a2a_handoff.transports.native import body_of
from a2a_handoff.wire.push import TOKEN_HEADER

PATH = "/callbacks/{handoff_id}/{attempt}"

_PATH = re.compile(r"/callbacks/([^/]+)/([1-9][0-9]{0,5})", re.ASCII)


class CallbackSurface:
    """The endpoint of ``PATH``. ``relate`` notes which span the request is about."""

    def __init__(
        self, callbacks: Callbacks, hearing: Hearing, *, relate: Callable[[SpanRef], None], bounds: Bounds
    ) -> None:
        self._callbacks = callbacks
        self._hearing = hearing
        self._relate = relate
        self._bounds = bounds

    def lets_in(self, scope: Scope) -> bool:
        """Whether a request is for here and has the right token."""
        return self._attempt_of(Request(scope)) is not None

    async def take(self, request: Request) -> Response:
        """Take one notification: 204 once it is safe, or only a hint."""
        attempt = self._attempt_of(request)
        if attempt is None:
            raise HandoffError(Code.NOT_FOUND)
        try:
            body = await body_of(request, self._bounds)
            handoff = await self._hearing.take(*attempt, body)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except StoreUnavailable as error:
            raise HandoffError(Code.UNAVAILABLE, retry_after_s=1.0) from error
        except HandoffError as error:
            if error.code is Code.TASK_NOT_FOUND:
                raise HandoffError(Code.NOT_FOUND) from None
            raise
        trace, span_id = handoff.trace, handoff.attempts[attempt[1] - 1].span_id
        self._relate(SpanRef(trace_id=trace.trace_id, span_id=span_id, sampled=trace.sampled))
        return Response(status_code=204)

    def _attempt_of(self, request: Request) -> tuple[str, int] | None:
        """The handoff and the attempt that a request may speak of; ``None`` if its token is not good."""
        found = _PATH.fullmatch(request.scope["path"])
        if found is None:
            return None
        attempt = found[1], int(found[2])
        return attempt if self._callbacks.admits(*attempt, _token(request)) else None


def _token(request: Request) -> str:
    token = request.headers.get(TOKEN_HEADER, "")
    if token:
        return token
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""
