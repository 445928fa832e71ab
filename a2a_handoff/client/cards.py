"""Read AgentCards from addresses that callers name.

Duty: ``ports.CardFetcher``: where to look, and whether what is found is a card.
Rules: one text for every failure, so that nobody can use it to scan ports. The URL policy vets each
address, redirects are not followed, time and size are bounded. A place without a card is no sign that
the agent is down.
Sources: A2A 1.0 sections 8.2 and 14.3 (well-known URI), RFC 8615.
Not here: what a card means (``wire``).
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Raw

from a2a_handoff.client.http import Call, Http
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import AgentError, FetchedCard, UrlPolicy
from a2a_handoff.wire.envelope import open_object

_WELL_KNOWN: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")

#: None is named by servers that do not know, the last two are those of plain files.
_TYPES: Final = frozenset({"", "application/json", "text/json", "text/plain", "application/octet-stream"})

#: Every generation's card has a name and one of these.
_SIGNS: Final = frozenset({"supportedInterfaces", "url", "skills", "capabilities"})

_object = msgspec.json.Decoder(dict[str, Raw])


class WellKnownCardFetcher:
    """``ports.CardFetcher``. ``timeout_s`` bounds the whole search, ``max_bytes`` one body."""

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        connect_s: float = 3.0,
        timeout_s: float = 10.0,
        max_bytes: int = 1_048_576,
        extra_ca_pem: bytes = b"",
    ) -> None:
        self._policy = policy
        self._connect_s = connect_s
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._extra_ca_pem = extra_ca_pem

    async def fetch(self, url: str) -> FetchedCard:
        """Read a card from the address itself, else from the well-known paths below it.

        Raises ``HandoffError`` (``card_unavailable``) with one generic text for every cause.
        """
        return await self._search(url, "")

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        """Read a card again where it was found. ``None``: it is still the one of ``etag``.

        Raises ``HandoffError`` (``card_unavailable``).
        """
        card = await self._search(url, etag)
        return card if card.body else None

    async def _search(self, url: str, etag: str) -> FetchedCard:
        http = Http(self._policy, connect_s=self._connect_s, extra_ca_pem=self._extra_ca_pem)
        try:
            async with asyncio.timeout(self._timeout_s):
                for place in places(url):
                    card = await self._read(http, place, etag if place == url else "")
                    if card is not None:
                        return card
        except (TimeoutError, ValueError):
            pass
        finally:
            await http.close()
        raise HandoffError(Code.CARD_UNAVAILABLE)

    async def _read(self, http: Http, url: str, etag: str = "") -> FetchedCard | None:
        """The card at one place; without a body if it is that of ``etag``; ``None`` if there is none."""
        named = (("If-None-Match", etag),) if etag else ()
        call = Call(method="GET", url=url, headers=(("Accept", "application/json"), *named), repeatable=True)
        try:
            whole_s = 2 * self._timeout_s + 1.0
            async with http.exchange(call, wait_s=self._timeout_s, whole_s=whole_s) as answer:
                if answer.status == 304 and etag:
                    return FetchedCard(body=b"", url=url, etag=etag)
                if answer.status != 200:
                    return None
                if not is_json_type(answer.header("content-type")):
                    return None
                body = await answer.read(limit=self._max_bytes, wait_s=self._timeout_s)
                etag = answer.header("etag")
        except AgentError:
            return None
        return FetchedCard(body=body, url=url, etag=etag) if _is_card(body) else None


def places(url: str) -> list[str]:
    """Where the card of an address may be: there, in the well-known places below, at the origin.

    Raises ``ValueError`` for what is not a URL.
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    found = [urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))] if path else []
    for base in (path, ""):
        for name in _WELL_KNOWN:
            place = urlunsplit((parts.scheme, parts.netloc, base + name, "", ""))
            if place not in found:
                found.append(place)
    return found


def is_json_type(content_type: str) -> bool:
    """Whether a card may be what is served as ``content_type``; servers of plain files do not know JSON."""
    essence = content_type.partition(";")[0].strip().lower()
    return essence in _TYPES or essence.endswith("+json")


def _is_card(body: bytes) -> bool:
    try:
        open_object(body)
        fields = _object.decode(body)
    except (HandoffError, msgspec.DecodeError):
        return False
    return "name" in fields and not _SIGNS.isdisjoint(fields)
