"""``agents check`` and ``context check``: what is wrong with a file, and where.

Duty: read the file (or address, or standard input), show each fault as a compiler does, or as JSON.
Rules: a card at an address is looked for where the broker would look, and refused for what it would refuse:
redirects, other content types, more than its limit.
Not here: what makes a card or a context wrong (``wire.cards``, ``wire.card_lints``, ``wire.context``,
``core.budget``).
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from a2a_handoff.cli import show
from a2a_handoff.cli.outcome import FAILED, UNREACHABLE, USAGE, Failed
from a2a_handoff.core.budget import compact, fit
from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI, TOKEN_BUDGET
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.wire.card_lints import addresses_of
from a2a_handoff.wire.card_values import Finding, Severity
from a2a_handoff.wire.cards import CARD_BYTES_MAX, Fault, check, located
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.fields import members_of

_STYLES = {"error": "bold red", "warning": "bold yellow", "hint": "bold cyan"}
_TIMEOUT_S = 10.0
_ANSWERS_S = 5.0


def read_text(name: str) -> str:
    """The text of a file, or of standard input for ``-``. Raises ``Failed``."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{name}: not UTF-8", code=USAGE) from None
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}", code=USAGE) from None


# --- cards ---------------------------------------------------------------------------------------


def check_cards(names: list[str], *, live: bool = False, as_json: bool = False) -> int:
    """Check AgentCards in files, at addresses or on standard input; 1 if one has an error.

    ``live`` also sees whether their addresses answer. ``as_json`` prints one list for all.
    """
    out = show.console()
    found: list[dict[str, Any]] = []
    for name in names:
        text = _fetch(name) if name.startswith(("http://", "https://")) else read_text(name)
        faults = check(text)
        if live:
            faults = located(text, _silent(text), faults)
        found += [{"card": name, **asdict(fault), "severity": fault.severity.value} for fault in faults]
        if not as_json:
            _show(out, name, text, faults)
    if as_json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    return FAILED if any(each["severity"] == "error" for each in found) else 0


def _show(out: Console, name: str, text: str, faults: list[Fault]) -> None:
    for fault in faults:
        where = f"{name}:{fault.line}:{fault.column}"
        _fault(out, where, fault.severity.value, fault.message, fault.path)
        _source(out, text, fault.line, fault.column)
    counts = Counter(fault.severity for fault in faults)
    wrong, odd, hints = counts[Severity.ERROR], counts[Severity.WARNING], counts[Severity.HINT]
    more = f", {_count(hints, 'hint')}" if hints else ""
    if wrong or odd:
        out.print(f"{name}: {_count(wrong, 'error')}, {_count(odd, 'warning')}{more}")
    else:
        out.print(Text.assemble(name, ": ", ("good", "green"), more))


def _fetch(url: str) -> str:
    """A card from its address, or from the well-known paths below it and at its origin."""
    import httpx  # noqa: PLC0415 - files need no HTTP

    from a2a_handoff.client.cards import places  # noqa: PLC0415 - files need no HTTP

    try:
        addresses = places(url)
    except ValueError:
        raise Failed(f"{url}: is not a URL", code=UNREACHABLE) from None
    reasons: list[str] = []
    with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
        for address in addresses:
            try:
                with client.stream("GET", address, headers={"Accept": "application/json"}) as answer:
                    why = _unfit(answer.status_code, answer.headers)
                    body = b"" if why else _read(answer.iter_bytes())
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise Failed(f"{address}: {error or type(error).__name__}", code=UNREACHABLE) from None
            if why is None:
                return body.decode(errors="replace")
            reasons.append(f"{address}: {why}")
    raise Failed(f"{url}: there is no card\n  " + "\n  ".join(reasons), code=UNREACHABLE)


def _unfit(status: int, headers: Mapping[str, str]) -> str | None:
    """Why an answer is no card for a broker."""
    from a2a_handoff.client.cards import is_json_type  # noqa: PLC0415 - files need no HTTP

    if 300 <= status < 400:
        return f"leads to {headers.get('location', 'nowhere')}, and redirects are not followed"
    if status != 200:
        return f"HTTP {status}"
    stated = headers.get("content-type", "")
    return None if is_json_type(stated) else f"is {stated.partition(';')[0]}, not application/json"


def _read(pieces: Iterable[bytes]) -> bytes:
    """A body up to one byte more than a card may have, so that the check sees that it is too large."""
    body = b""
    for piece in pieces:
        body += piece
        if len(body) > CARD_BYTES_MAX:
            return body[: CARD_BYTES_MAX + 1]
    return body


def _silent(text: str) -> list[Finding]:
    """Which addresses of a card do not answer. Any answer of HTTP will do, and a connection for gRPC."""
    try:
        addresses = addresses_of(json.loads(text))
    except ValueError:
        return []
    found: list[Finding] = []
    for path, url, grpc in addresses:
        why = _no_connection(url) if grpc else _no_answer(url)
        if why:
            found.append(Finding(path, f"does not answer: {why}", Severity.ERROR))
    return found


def _no_answer(url: str) -> str:
    import httpx  # noqa: PLC0415 - files need no HTTP

    try:
        with httpx.Client(timeout=_ANSWERS_S, trust_env=False) as client, client.stream("GET", url):
            return ""
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return str(error) or type(error).__name__


def _no_connection(address: str) -> str:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_ANSWERS_S):
            return ""
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _fault(out: Console, where: str, severity: str, message: str, path: str) -> None:
    line = Text.assemble((f"{where}: ", "bold"), (f"{severity}: ", _STYLES.get(severity, "bold")))
    line.append(show.clean(message))
    if path:
        line.append(f" [{show.clean(path)}]", style="dim")
    out.print(line)


def _source(out: Console, text: str, line: int, column: int) -> None:
    """The line and a caret below the column; tabs stay tabs, so that the caret stands right."""
    lines = text.splitlines()
    if not 1 <= line <= len(lines):
        return
    source = lines[line - 1]
    start = max(0, column - 1 - 60) if len(source) > 120 else 0
    shown = source[start : start + 120]
    before = shown[: max(0, column - 1 - start)]
    margin = "".join("\t" if char == "\t" else " " for char in before)
    out.print(Text("    " + show.clean(shown)))
    out.print(Text.assemble("    " + margin, ("^", "bold green")))


# --- contexts ------------------------------------------------------------------------------------


def check_context(name: str, *, token_budget: int = TOKEN_BUDGET) -> int:
    """Check a handoff context: its fields, its tokens; 1 if it would be refused.

    The file holds the context itself, or an object (a message, its metadata, the params of a request)
    that has it under ``handoff_context`` or under the URI of the extension.
    """
    from a2a_handoff.tokens import BpeCounter  # noqa: PLC0415 - cards need no tokenizer

    out = show.console()
    counter = BpeCounter()
    body, path = _context_in(read_text(name).encode(errors="surrogatepass"), name)
    try:
        package = read_context(body, path=path, now=time.time())
        context, options = package.context, package.options
        fitted = fit(
            context,
            count=counter.count,
            limit=token_budget,
            overflow=options.context_overflow,
            profile=options.context_profile,
            tokenizer=counter.name,
        )
    except HandoffError as error:
        too_large = error.code is Code.CONTEXT_TOO_LARGE
        faults = [(error.message, "")] if too_large else [(v.description, v.field) for v in error.violations]
        for message, field in faults:
            _fault(out, name, "error", message, field)
        return FAILED
    for warning in (*package.warnings, *fitted.warnings):
        _fault(out, name, "warning", warning, "")
    fits = fitted.context
    tokens = fitted.tokens or counter.count(fits.conversation_summary) + counter.count(
        compact(fits.key_facts)
    )
    out.print(f"{name}: {tokens} of {token_budget} tokens ({counter.name})")
    return 0


def _context_in(body: bytes, name: str) -> tuple[bytes, str]:
    """The context that a file holds, and its path in it. Raises ``Failed`` if it is no JSON object."""
    members = members_of(body)
    if members is None:
        raise Failed(f"{name}: not a JSON object", code=USAGE)
    for key in (CONTEXT_KEY, EXTENSION_URI):
        if key in members:
            return bytes(members[key]), key
    for key in ("params", "metadata"):
        if key in members and not members.keys() & {"user_intent", "conversation_summary"}:
            inner, path = _context_in(bytes(members[key]), f"{name}: {key}")
            return inner, f"{key}.{path}"
    return body, CONTEXT_KEY


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
