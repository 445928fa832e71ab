"""The public keys of an identity provider.

Duty: a JSON Web Key Set, read from where it is published, kept, and read anew when keys were changed.
Rules: keys that are known go on working while their source cannot be read. A token that names a key that
is not known makes the set be read again, at most every ``AGAIN_S`` seconds, whatever callers send. A key
that cannot be used here is left out.
Sources: RFC 7517 (JSON Web Key), RFC 7518 section 6.
Not here: tokens (``bearer``), how an address is read (``client``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from a2a_handoff.core.errors import Code, HandoffError

#: Reads the document. Raises ``OSError`` or ``HandoffError`` if it cannot be had.
Source = Callable[[], Awaitable[bytes]]

#: Seconds after which the set is read again, so that a key that was withdrawn is not believed for ever.
KEEP_S = 600.0
#: Seconds after a reading in which nobody asks again, even without any key.
_AT_ONCE_S = 1.0
#: Seconds that have to pass before an unknown key makes the set be read again.
AGAIN_S = 10.0
_KEYS_MAX = 100
_TYPES = frozenset({"RSA", "EC", "OKP"})

_LOG = logging.getLogger("a2a_handoff.security")


class PublicKeys:
    """Keys by their ids. ``monotonic`` gives seconds; ``named`` is how the log calls their source."""

    def __init__(self, source: Source, *, monotonic: Callable[[], float], named: str) -> None:
        self._source = source
        self._monotonic = monotonic
        self._named = named
        self._keys: dict[str, Key] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self.edition = 0
        """Counts the sets that differed: what an older one vouched for must be judged again."""

    async def find(self, key_id: str) -> Key | None:
        """The key of an id; without an id the only one there is.

        Raises ``HandoffError`` (``unavailable``) if no set could ever be read.
        """
        if self._read_at is None or (self._of(key_id) is None and self._waited(self._tried_at, AGAIN_S)):
            await self._refresh()
        if self._read_at is None:
            raise HandoffError(
                Code.UNAVAILABLE, "The keys to verify signatures with cannot be read.", retry_after_s=5
            )
        self.stay_fresh()
        return self._of(key_id)

    def stay_fresh(self) -> None:
        """Read the set again if it is old; nobody waits for it."""
        if self._waited(self._read_at, KEEP_S) and self._waited(self._tried_at, AGAIN_S):
            self._begin()

    def _waited(self, since: float | None, seconds: float) -> bool:
        return since is None or self._monotonic() - since >= seconds

    def _of(self, key_id: str) -> Key | None:
        if key_id:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    async def _refresh(self) -> None:
        """One reading for all who wait; shielded, since one of them may be cancelled."""
        if self._reading is None and not self._waited(self._tried_at, _AT_ONCE_S):
            return
        await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._reading is None:
            self._tried_at = self._monotonic()
            self._reading = asyncio.create_task(self._read(), name="token-keys")
            self._reading.add_done_callback(self._done)
        return self._reading

    def _done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is not None:
            _LOG.error("the keys of %s could not be read", self._named, exc_info=reading.exception())

    async def _read(self) -> None:
        try:
            keys = _keys_of(await self._source())
        except (OSError, HandoffError, ValueError, msgspec.DecodeError) as error:
            _LOG.warning("the keys of %s cannot be read: %s", self._named, error)
            return
        self._read_at = self._monotonic()
        if {k: key.as_dict(private=False) for k, key in keys.items()} != {
            k: key.as_dict(private=False) for k, key in self._keys.items()
        }:
            self._keys = keys
            self.edition += 1
            _LOG.info("%d keys are known from %s", len(keys), self._named)

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _keys_of(document: bytes) -> dict[str, Key]:
    """The usable keys of a set. Raises ``ValueError`` if it is none, or has none."""
    try:
        decoded: Any = msgspec.json.decode(document)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    listed: Any = cast("dict[str, Any]", decoded).get("keys") if isinstance(decoded, dict) else None
    if not isinstance(listed, list):
        raise ValueError("that is no JSON Web Key Set")  # noqa: TRY004 - what it says is wrong, not its type
    found: dict[str, Key] = {}
    for entry in cast("list[Any]", listed)[:_KEYS_MAX]:
        if not isinstance(entry, dict):
            continue
        said = cast("dict[str, Any]", entry)
        try:
            if said.get("kty") not in _TYPES or said.get("use", "sig") != "sig":
                continue
            key = JWKRegistry.import_key(said)
            key.ensure_kid()
        except (JoseError, ValueError, TypeError, LookupError):  # a curve that nobody here knows is the last
            continue
        found[str(key.kid)] = key
    if not found:
        raise ValueError("the set has no key that can verify a signature")
    return found
