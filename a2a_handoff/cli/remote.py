"""A running broker, as the client commands see it.

Duty: HTTP to the broker and reading its answers; every way in which that can go wrong is one
``Failed`` with a line that says what to do.
Rules: no proxy for loopback addresses. An answer that is not JSON is not a broker's.
Not here: what the answers mean (``show``, ``send``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx
import msgspec
from pydantic import BaseModel, ValidationError

from a2a_handoff.cli.outcome import UNREACHABLE, USAGE, Failed
from a2a_handoff.cli.place import Place
from a2a_handoff.config.settings import is_loopback
from a2a_handoff.wire.native.outbound import Problem

CONNECT_S = 5.0
ANSWER_S = 30.0

#: A stream that says nothing for this long is dead: the broker sends a comment at least every minute.
SILENCE_S = 150.0

_M = TypeVar("_M", bound=BaseModel)


class Broker:
    """A broker, to be closed by ``with``. Every method raises ``Failed`` and nothing else."""

    def __init__(self, place: Place) -> None:
        direct = is_direct(place.url)
        self.url = place.url.rstrip("/")
        self._http = httpx.Client(
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=not direct,
            headers={"Accept": "application/json", **place.headers()},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """The body of a good answer."""
        with self._told():
            response = self._http.get(self.url + path, params=params)
        return self._body(response)

    def post(
        self,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        wait_s: float | None = ANSWER_S,
    ) -> bytes:
        """The body of a good answer. ``wait_s`` is how long it may take, ``None`` for ever."""
        timeout = httpx.Timeout(wait_s, connect=CONNECT_S)
        json = {"Content-Type": "application/json", **(headers or {})}
        with self._told():
            response = self._http.post(self.url + path, content=body, headers=json, timeout=timeout)
        return self._body(response)

    def delete(self, path: str) -> bytes:
        """The body of a good answer."""
        with self._told():
            response = self._http.delete(self.url + path)
        return self._body(response)

    def events(self, path: str, body: bytes, headers: Mapping[str, str]) -> Iterator[bytes]:
        """The data of each server-sent event (HTML Living Standard section 9.2) of the answer.

        An answer that is one JSON document, such as an error, is one event.
        """
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=SILENCE_S)
        sent = {"Content-Type": "application/json", **headers, "Accept": "text/event-stream"}
        with (
            self._told(),
            self._http.stream("POST", self.url + path, content=body, headers=sent, timeout=timeout) as answer,
        ):
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                answer.read()
                yield self._body(answer)
                return
            data: list[str] = []
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    data.append(line.removeprefix("data:").removeprefix(" "))
                elif not line and data:
                    yield "\n".join(data).encode()
                    data = []

    def read(self, model: type[_M], body: bytes) -> _M:
        """An answer as the shape that it should have."""
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            where = ".".join(str(step) for step in error.errors(include_url=False)[0]["loc"])
            raise Failed(
                f"{self.url} answered in a shape that this version does not know (at {where or 'the top'})",
                code=UNREACHABLE,
            ) from None

    @contextmanager
    def _told(self) -> Generator[None]:
        """Network errors as lines."""
        try:
            yield
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise _not_an_address(self.url) from None
        except httpx.HTTPError as error:
            raise Failed(explained(self.url, error), code=UNREACHABLE) from None

    def _body(self, response: httpx.Response) -> bytes:
        try:
            answer: Any = msgspec.json.decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kind = response.headers.get("content-type", "").partition(";")[0] or "no content type"
            raise Failed(
                f"{response.request.method} {response.request.url} answered {response.status_code} with "
                f"{kind}, not JSON: is that an a2a-handoff broker?",
                code=UNREACHABLE,
            ) from None
        if response.is_success:
            return response.content
        raise refusal(response.status_code, answer)


def explained(url: str, error: httpx.HTTPError) -> str:
    """Why a call of the broker at ``url`` failed on the way, in a line."""
    match error:
        case httpx.ConnectTimeout():
            return f"{url} cannot be reached within {CONNECT_S:g} s"
        case httpx.ConnectError():
            hint = "; is it running? start one with: a2a-handoff serve"
            return f"no broker answers at {url}: {_cause(error)}{hint}"
        case httpx.TimeoutException():
            return f"{url} did not answer in time"
        case _:
            return f"the connection to {url} broke: {_cause(error)}"


def is_direct(url: str) -> bool:
    """Whether a broker is on this machine, where no proxy stands. Raises ``Failed`` if it is no address."""
    return is_loopback(_host(url))


def refusal(status: int, answer: object) -> Failed:
    """An error answer as lines: problem details (RFC 9457) or a JSON-RPC error."""
    fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    if isinstance(fields.get("error"), dict):
        return rpc_refusal(cast("dict[str, Any]", fields["error"]))
    try:
        problem = Problem.model_validate(fields)
    except ValidationError:
        return Failed(f"the broker refused with HTTP {status}")
    faults = [f"  {fault.field}: {fault.description}" for fault in problem.errors]
    facts = [f"  {name}: {value}" for name, value in problem.facts.items()]
    return Failed(f"{problem.detail or problem.title} ({problem.code})", *faults, *facts)


def rpc_refusal(error: Mapping[str, Any]) -> Failed:
    """A JSON-RPC error as lines, with the details that A2A 1.0 section 9.5 puts in ``data``."""
    details = cast("list[dict[str, Any]]", error.get("data")) if isinstance(error.get("data"), list) else []
    reason = next((str(each["reason"]).lower() for each in details if each.get("reason")), "")
    faults = [
        f"  {fault.get('field', '')}: {fault.get('description', '')}"
        for each in details
        for fault in each.get("fieldViolations", [])
    ]
    return Failed(f"{error.get('message', 'refused')} ({reason or error.get('code')})", *faults)


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _not_an_address(url) from None
    if parts.scheme not in ("http", "https") or not host:
        raise _not_an_address(url)
    return host


def _not_an_address(url: str) -> Failed:
    return Failed(f"{url!r} is not the address of a broker (such as http://127.0.0.1:8080)", code=USAGE)


def _cause(error: Exception) -> str:
    """The innermost cause in words, without httpx's wrapping."""
    cause: BaseException = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(error) or type(error).__name__
