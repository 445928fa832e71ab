"""What the native REST handlers share: reading a call, and what they answer.

Duty: bodies within their limit, parameters, tags of versions; answers and refusals as responses.
Sources: RFC 9457 (problem details), RFC 9110 sections 8.8.3 and 13.1 (entity tags, preconditions), RFC
7240 (preferences).
Not here: what is asked (``rest``, ``live``), which routes there are (``routes``).
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.ports import Principal
from a2a_handoff.transports.asgi import Bounds, stream
from a2a_handoff.wire import faults, native
from a2a_handoff.wire.envelope import open_object

Answer = BaseModel | bytes | None

_TAG = re.compile(r'"(\d{1,15})(?:-\d{1,15})*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a handler answers: a model, or raw bytes of ``media_type``."""

    body: Answer = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def response(self) -> Response:
        """As it is sent."""
        match self.body:
            case None:
                return Response(status_code=self.status, headers=self.headers)
            case bytes() as content:
                pass
            case model:
                content = native.encode(model)
        return Response(content, status_code=self.status, media_type=self.media_type, headers=self.headers)


class EventStream(Response):
    """Server-sent events, at the pace of who reads them; ``None`` is a keep-alive.

    ``held`` is entered for as long as they last.
    """

    def __init__(self, events: AsyncGenerator[bytes | None], *, held: AbstractContextManager[None]) -> None:
        super().__init__()
        self._events = events
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the reader is gone."""
        del scope
        with self._held:
            await stream(receive, send, self._events)


Handler = Callable[[Request, Principal], Awaitable[Done | Response]]


# --- reading -------------------------------------------------------------------------------------


async def body_of(request: Request, bounds: Bounds) -> bytes:
    """The whole body: nothing, or one JSON object. Raises ``payload_too_large``, ``parse_error``."""
    limit = bounds.size
    stated = request.headers.get("content-length", "")
    size = int(stated) if stated.isascii() and stated.isdigit() else 0
    parts: list[bytes] = []
    if size <= limit:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            parts.append(part)
    if size > limit:
        raise HandoffError(
            Code.PAYLOAD_TOO_LARGE,
            f"The body is larger than {limit} bytes.",
            facts={"limit_bytes": str(limit)},
        )
    body = b"".join(parts)
    if body:
        open_object(body, bounds.values)
    return body


def number(text: str, name: str, most: int, *, least: int = 0) -> int:
    """A whole number from ``least`` to ``most``. Raises ``invalid_params``."""
    if not text.isascii() or not text.isdigit() or len(text) > 16 or not least <= int(text) <= most:
        raise wrong(name, f"must be a number from {least} to {most}")
    return int(text)


def seconds(text: str, name: str, most: float) -> float:
    """A duration from 0 to ``most``. Raises ``invalid_params``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise wrong(name, f"must be a number of seconds from 0 to {most:g}")
    return value


def words(text: str, name: str, known: frozenset[str]) -> frozenset[str]:
    """Words separated by commas, each of ``known``. Raises ``invalid_params``."""
    found = frozenset(filter(None, text.split(",")))
    if not found <= known:
        raise wrong(name, f"must be of {', '.join(sorted(known))}")
    return found


def given(request: Request, name: str) -> str:
    """A parameter that must not be missing. Raises ``invalid_params``."""
    value = request.query_params.get(name, "")
    if not value:
        raise wrong(name, "is missing")
    return value


def wrong(name: str, fault: str) -> HandoffError:
    """A parameter is wrong."""
    return HandoffError(Code.INVALID_PARAMS, f"{name} {fault}.", violations=(Violation(name, fault),))


# --- versions ------------------------------------------------------------------------------------


def tag_of(versions: Mapping[str, int]) -> str:
    """The entity tag of a handoff: its version, then those of the handoffs that it was handed on to."""
    return f'"{"-".join(map(str, versions.values()))}"'


def wanted_versions(request: Request) -> frozenset[int]:
    """The versions that ``If-Match`` names; none if any will do. What is no tag of ours matches nothing."""
    header = request.headers.get("if-match", "").strip()
    if header in ("", "*"):
        return frozenset()
    tags = (_TAG.fullmatch(tag.strip()) for tag in header.split(","))
    return frozenset(int(tag[1]) for tag in tags if tag is not None) or frozenset({0})


def is_known(request: Request, tag: str) -> bool:
    """Whether ``If-None-Match`` says that the caller has this one."""
    header = request.headers.get("if-none-match", "")
    return any(named.strip().removeprefix("W/") in ("*", tag) for named in header.split(","))


# --- preferences ---------------------------------------------------------------------------------

_MINIMAL = "return=minimal"
#: Says that the caller gets as little as it wanted.
APPLIED = {"Preference-Applied": _MINIMAL}


def wants_little(request: Request) -> bool:
    """Whether the caller does not want to see what it knows already (RFC 7240 section 4.2)."""
    named = ",".join(request.headers.getlist("prefer")).split(",")
    return any(each.partition(";")[0].strip().lower().replace('"', "") == _MINIMAL for each in named)


# --- refusing ------------------------------------------------------------------------------------


async def on_refusal(request: Request, error: Exception) -> Response:
    """A refused call as problem details."""
    if isinstance(error, HTTPException):
        error = _unrouted(request, error)
    if not isinstance(error, HandoffError):
        error = HandoffError(Code.INTERNAL)
    refusal = faults.problem(error, request.url.path)
    return Response(
        refusal.body,
        status_code=refusal.status,
        media_type=refusal.media_type,
        headers=dict(refusal.headers),
    )


def _unrouted(request: Request, error: HTTPException) -> HandoffError:
    """There is no such path, or not with this method: then with which."""
    if error.status_code != 405:
        return HandoffError(Code.NOT_FOUND)
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    fitting = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = {method for route in fitting for method in route.methods or ()}
    return HandoffError(Code.METHOD_NOT_ALLOWED, facts={faults.ALLOW: ", ".join(sorted(allowed))})
