"""Which addresses the broker may call.

Duty: the outbound URL policy (``ports.UrlPolicy``) for agents, cards and webhooks.
Rules: every address that a name has must pass, else none is used: a name with one public and one
private address is a trick. IPv6 forms that carry an IPv4 address are judged by that address too. The
address that ``vet`` returns is the one to connect to; to resolve again would be a race (DNS
rebinding). A passed name is kept for a short time, so a busy agent does not cost a lookup for each
call. Every refusal has the same text: it must not tell open ports from closed ones.
Sources: A2A 1.0 section 13.2; RFC 6890 and its registries; RFC 4291 section 2.5.5, RFC 6052,
RFC 3056 (addresses inside addresses).
Not here: connecting (``client.http``).
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from a2a_handoff.core.errors import Code, HandoffError

#: Finds the addresses of a host name. May raise ``OSError``.
Resolver = Callable[[str], Awaitable[Sequence[str]]]

_URL_MAX = 2_048
_KEPT_NAMES = 4_096
_KEPT_URLS = 1_024

#: Printable ASCII without the backslash, which parsers read differently (WHATWG: a slash).
_PLAIN = re.compile(r"[!-\[\]-~]+")
_HOST = re.compile(r"[a-z0-9._-]{1,253}")

#: Never called, whatever the setting: this network itself, link-local with the clouds' metadata
#: services, multicast, reserved and broadcast.
_NEVER_V4: Final = tuple(
    IPv4Network(network) for network in ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
)
_NEVER_V6: Final = tuple(IPv6Network(network) for network in ("fe80::/10", "ff00::/8"))

#: Metadata services of clouds outside the link-local range (Alibaba, Azure, AWS on IPv6).
_METADATA: Final = frozenset(
    {IPv4Address("100.100.100.200"), IPv4Address("168.63.129.16"), IPv6Address("fd00:ec2::254")}
)

#: Between networks of a provider (RFC 6598): neither global nor private by name.
_SHARED: Final = IPv4Network("100.64.0.0/10")

_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = IPv6Network("::/96")
_TEREDO: Final = IPv6Network("2001::/32")


@lru_cache(maxsize=_KEPT_NAMES)
def permitted(address: str, *, allow_private: bool = False) -> bool:
    """Whether the broker may connect to an IP address.

    Global addresses pass. With ``allow_private`` loopback, private and shared ones pass too. Nothing
    makes link-local, unspecified, multicast, reserved and metadata addresses pass.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return _permitted_v4(ip, allow_private=allow_private)
    if ip.scope_id is not None or ip in _METADATA or any(ip in network for network in _NEVER_V6):
        return False
    if ip in _TEREDO or ip in _NAT64_LOCAL or ip == IPv6Address("::"):
        return False
    if ip == IPv6Address("::1"):
        return allow_private
    inner = _inner(ip)
    if inner is not None:
        return _permitted_v4(inner, allow_private=allow_private)
    return ip.is_global or (allow_private and ip.is_private)


def _permitted_v4(ip: IPv4Address, *, allow_private: bool) -> bool:
    if ip in _METADATA or any(ip in network for network in _NEVER_V4):
        return False
    return ip.is_global or (allow_private and (ip.is_private or ip in _SHARED))


def _inner(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: where the packets end up."""
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip in _NAT64 or ip in _COMPATIBLE:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return None


class OutboundPolicy:
    """``ports.UrlPolicy``: http and https, to addresses that ``permitted`` lets pass.

    ``keep_s`` is how long a passed name is used without asking again, ``lookup_s`` bounds one lookup;
    both in seconds. ``resolver`` stands in for the system's.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        keep_s: float = 30.0,
        lookup_s: float = 3.0,
        resolver: Resolver | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._keep_s = keep_s
        self._lookup_s = lookup_s
        self._resolver = resolver or _SystemResolver()
        self._kept: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._pending: dict[str, asyncio.Task[str]] = {}

    async def vet(self, url: str) -> str:
        """Resolve the host once and return the address to connect to.

        Raises ``HandoffError`` (``card_unavailable``) if scheme or address is not allowed, and if the
        name has no address.
        """
        host = _host_of(url)
        if host is None:
            raise HandoffError(Code.CARD_UNAVAILABLE)
        literal = _literal(host)
        if not literal:
            return await self._address_of(host)
        if not permitted(literal, allow_private=self._allow_private):
            raise HandoffError(Code.CARD_UNAVAILABLE)
        return literal

    async def _address_of(self, host: str) -> str:
        kept = self._kept.get(host)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        pending = self._pending.get(host)
        if pending is None:
            # One lookup for all who wait; shielded, since one of them may be cancelled.
            pending = asyncio.ensure_future(self._resolve(host))
            self._pending[host] = pending
            pending.add_done_callback(lambda done: self._forget(host, done))
        return await asyncio.shield(pending)

    def _forget(self, host: str, done: asyncio.Task[str]) -> None:
        del self._pending[host]
        if not done.cancelled():
            done.exception()  # seen, even when nobody waits any more

    async def _resolve(self, host: str) -> str:
        try:
            async with asyncio.timeout(self._lookup_s):
                addresses = await self._resolver(host)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            raise HandoffError(Code.CARD_UNAVAILABLE) from None
        passed = all(permitted(a, allow_private=self._allow_private) for a in addresses)
        if not addresses or not passed:
            raise HandoffError(Code.CARD_UNAVAILABLE)
        # IPv4 first: "localhost" has both, and most local servers listen on 127.0.0.1 alone.
        address = min(addresses, key=lambda a: ":" in a)
        self._kept[host] = (time.monotonic() + self._keep_s, address)
        self._kept.move_to_end(host)
        if len(self._kept) > _KEPT_NAMES:
            self._kept.popitem(last=False)
        return address


class _SystemResolver:
    """``getaddrinfo`` in threads of its own: a slow name server must not block other thread work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="resolve")

    async def __call__(self, host: str) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
        return [str(entry[4][0]) for entry in found]


@lru_cache(maxsize=_KEPT_NAMES)
def _literal(host: str) -> str:
    """The address that a host is written as; empty if it is a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return ""


@lru_cache(maxsize=_KEPT_URLS)
def _host_of(url: str) -> str | None:
    """The host, in lower case and without brackets; ``None`` if the URL is not one to call."""
    if len(url) > _URL_MAX or not _PLAIN.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a port
    except ValueError:
        return None
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        return None
    return host if _HOST.fullmatch(host) or ":" in host else None
