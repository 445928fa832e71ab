"""Durable truth: the implementations of ``ports.Store``, chosen by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from a2a_handoff.stores.sqlite import LEASE_S, SqliteStore

if TYPE_CHECKING:
    from a2a_handoff.ports import Hints, Store

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def hints_of(url: str) -> Hints | None:
    """What carries wake-ups between the brokers on the store at ``url``; ``None``: it has one broker."""
    if not url.startswith(_POSTGRES):
        return None
    from a2a_handoff.stores.postgres_hints import PostgresHints  # noqa: PLC0415 - its driver is an extra

    return PostgresHints(url)


def open_store(url: str, *, lease_s: float = LEASE_S) -> Store:
    """The store that ``url`` names, still to be opened with ``await store.open()``.

    ``sqlite:///handoffs.db`` is relative to the working directory, ``sqlite:////var/handoffs.db`` is
    absolute; ``postgresql://user@host/database`` is as libpq has it. Raises ``ValueError`` for any other
    URL; its text shows only the scheme, since a URL may hold a password. Raises ``StoreUnavailable`` if what
    the store needs is not installed. ``lease_s``: how long a claim of work holds unless it is renewed, where
    several brokers share the store.
    """
    if url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
        if not path or path.endswith("/") or path == ":memory:" or "?" in path:
            raise ValueError(
                "A SQLite store needs a file: sqlite:///handoffs.db (relative) or "
                "sqlite:////var/lib/a2a-handoff/handoffs.db (absolute), without parameters."
            )
        return SqliteStore(Path(path))
    if url.startswith(_POSTGRES):
        from a2a_handoff.stores.postgres import PostgresStore  # noqa: PLC0415 - its driver is an extra

        return PostgresStore(url, lease_s=lease_s)
    scheme = url.partition(":")[0] if ":" in url else ""
    raise ValueError(
        f"No store for URLs that begin with {scheme!r}: "
        "use sqlite:///path (relative), sqlite:////path (absolute) or postgresql://user@host/database."
    )


__all__ = ["SqliteStore", "hints_of", "open_store"]
