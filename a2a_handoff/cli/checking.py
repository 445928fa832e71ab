"""``agents check`` and ``context check``: what is wrong with a file, and where.

Duty: read the file (or address, or standard input), show each fault as a compiler does.
Not here: what makes a card or a context wrong (``wire.cards``, ``wire.context``, ``core.budget``).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from a2a_handoff.cli import show
from a2a_handoff.cli.outcome import FAILED, UNREACHABLE, USAGE, Failed
from a2a_handoff.core.budget import compact, fit
from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI, TOKEN_BUDGET
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.wire.cards import check
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.fields import members_of

_WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_STYLES = {"error": "bold red", "warning": "bold yellow"}


def read_text(name: str) -> str:
    """The text of a file, or of standard input for ``-``. Raises ``Failed``."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{name}: not UTF-8", code=USAGE) from None
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}", code=USAGE) from None


# --- cards ---------------------------------------------------------------------------------------


def check_cards(names: list[str]) -> int:
    """Check AgentCards in files, at addresses or on standard input; 1 if one has an error."""
    out = show.console()
    errors = 0
    for name in names:
        text = _fetch(name) if name.startswith(("http://", "https://")) else read_text(name)
        faults = check(text)
        for fault in faults:
            where = f"{name}:{fault.line}:{fault.column}"
            _fault(out, where, str(fault.severity), fault.message, fault.path)
            _source(out, text, fault.line, fault.column)
        wrong = sum(str(fault.severity) == "error" for fault in faults)
        errors += wrong
        if not faults:
            out.print(Text.assemble(name, ": ", ("good", "green")))
        else:
            out.print(f"{name}: {_count(wrong, 'error')}, {_count(len(faults) - wrong, 'warning')}")
    return FAILED if errors else 0


def _fetch(url: str) -> str:
    """A card from its address, or from the well-known paths below a base address."""
    import httpx  # noqa: PLC0415 - files need no HTTP

    addresses = [url, *(url.rstrip("/") + path for path in _WELL_KNOWN if not url.endswith(".json"))]
    status = 0
    with httpx.Client(timeout=10.0, follow_redirects=True) as client:
        for address in addresses:
            try:
                answer = client.get(address, headers={"Accept": "application/json"})
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise Failed(f"{address}: {error or type(error).__name__}", code=UNREACHABLE) from None
            status = answer.status_code
            if answer.is_success and answer.content.lstrip()[:1] == b"{":
                return answer.text
    raise Failed(f"{url}: there is no card (HTTP {status})", code=UNREACHABLE)


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
