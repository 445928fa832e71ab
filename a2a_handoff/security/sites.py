"""Web pages of others must not use a broker that lets everybody in.

Duty: tell a request that a browser sends for the page of another site (cross-site request forgery), and one
that was led here under a name that is not the broker's (DNS rebinding).
Rules: programs send no ``Origin`` and are not concerned. Pages of this machine, of the broker's own address
and of ``public_url`` may call, and so may extensions, whose origins have schemes of their own. While the
broker listens on loopback, it is reached by an address of loopback, by the name of ``public_url``, or by a
name that no stranger can let point here: one without a dot, or of a zone that is nobody's.
Sources: RFC 6454 section 7 (Origin); RFC 9110 section 7.2 (Host); RFC 6761 section 6.3 (localhost); ICANN
resolution 2024.07.29.06 (internal).
Not here: who calls (``principals``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from a2a_handoff.config.settings import is_loopback

_KEPT = 1_024
_NOBODYS = (".localhost", ".internal")


class Sites:
    """Which sites may call. ``loopback``: the broker listens on this machine only."""

    def __init__(self, *, loopback: bool, public_url: str) -> None:
        self._loopback = loopback
        self._public = urlsplit(public_url).hostname or ""
        self._judged = lru_cache(maxsize=_KEPT)(self._judge)

    def fault(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why a request is not taken; empty if it is. ``headers`` are those of an ASGI scope."""
        host = origin = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        return self._judged(host, origin)

    def _judge(self, host: bytes, origin: bytes) -> str:
        asked = _hostname(f"//{host.decode('latin-1')}")
        local = "." not in asked or asked.endswith(_NOBODYS) or self._own(asked)
        if self._loopback and not local:
            return (
                f"This broker is not called {asked[:64]!r}. If it is reached by that name, "
                "set A2A_HANDOFF_PUBLIC_URL."
            )
        if not origin:
            return ""
        page = origin.decode("latin-1")
        if page != "null" and page.partition(":")[0].lower() not in ("http", "https"):
            return ""
        named = _hostname(page)
        if named and (self._own(named) or named == asked):
            return ""
        return f"The web page {page[:64]!r} may not use this broker."

    def _own(self, host: str) -> bool:
        return host == self._public or is_loopback(host)


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
