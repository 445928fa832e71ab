"""``db``: looking after the store of a broker.

Rules: a store on SQLite belongs to one process, so what opens it for writing wants the broker stopped; a
backup does not. Backups of PostgreSQL are made by its own programs, which know it better.
Not here: what the stores do.
"""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from a2a_handoff.cli.outcome import USAGE, Failed

if TYPE_CHECKING:
    from a2a_handoff.ports import Store

_T = TypeVar("_T")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_AT_ONCE = 100

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="The store: check, save, prune, migrate.")

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        show_default=False,
        help="As for serve. Default: what serve would use here.",
    ),
]


@app.command()
def migrate(store: StoreUrl = "") -> None:
    """Bring the schema up to date, as serve does when it starts. Safe beside brokers on PostgreSQL."""

    async def nothing(_: Store) -> None:
        pass

    url = _url(store)
    _file(url)
    _with_store(url, nothing)
    typer.echo(f"{_shown(url)} has the schema of this version")


@app.command()
def check(store: StoreUrl = "") -> None:
    """Read the whole log, and see that every state is what it gives. Exit code 1 if not."""
    from a2a_handoff.stores.verification import verify

    url = _url(store)
    if path := _file(url):
        from a2a_handoff.stores.sqlite_file import DatabaseFile

        if damage := _told(DatabaseFile(path).damage):
            raise Failed(f"{path} is damaged: restore a backup", *(f"  {line}" for line in damage))
    found = _with_store(url, verify)
    typer.echo(f"{_shown(url)}: {found.handoffs} handoffs, {found.events} events, {found.wrong} faults")
    if found.wrong:
        raise Failed(*(f"  {fault}" for fault in found.faults))


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not exist.")],
    store: StoreUrl = "",
) -> None:
    """Save a SQLite store to a file, also while its broker runs."""
    url = _url(store)
    path = _file(url)
    if path is None:
        raise Failed(
            "a database on PostgreSQL is saved by PostgreSQL's own program:",
            f"  pg_dump --format=custom --file={file} '{_shown(url)}'",
            code=USAGE,
        )
    from a2a_handoff.stores.sqlite_file import DatabaseFile

    size = _told(lambda: DatabaseFile(path).save(file))
    typer.echo(f"{file}: {size:,} bytes")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Such as 30d, 12h, 90m or 45s.")],
    store: StoreUrl = "",
) -> None:
    """Remove chains that ended longer ago. A running broker does so by itself: see the setting retention."""
    import time

    before = time.time() - _age(older_than)

    async def remove(opened: Store) -> int:
        count = 0
        while gone := await opened.prune(before=before, limit=_AT_ONCE):
            count += len(gone)
        return count

    url = _url(store)
    _file(url)
    typer.echo(f"{_shown(url)}: {_with_store(url, remove)} handoffs removed")


# --- the store -----------------------------------------------------------------------------------


def _url(given: str) -> str:
    from a2a_handoff.config import SettingsError, read

    try:
        return read(environ=os.environ, flags={"store": given} if given else {}, config_file=None).store
    except SettingsError as error:
        raise Failed(*error.lines, code=USAGE) from None


def _file(url: str) -> Path | None:
    """The file of a SQLite store, which nobody here makes."""
    if not url.startswith("sqlite:///"):
        return None
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        raise Failed(f"there is no store {path}", code=USAGE)
    return path


def _shown(url: str) -> str:
    """The URL without its password."""
    from a2a_handoff.config.settings import hide_password

    return hide_password(url).replace(":***@", "@")


def _with_store(url: str, use: Callable[[Store], Awaitable[_T]]) -> _T:
    from a2a_handoff.stores import open_store

    async def main() -> _T:
        store = open_store(url)
        await store.open()
        try:
            return await use(store)
        finally:
            await store.close()

    return _told(lambda: asyncio.run(main()))


def _told(work: Callable[[], _T]) -> _T:
    from a2a_handoff.ports import StoreUnavailable

    try:
        return work()
    except (StoreUnavailable, ValueError) as error:
        raise Failed(str(error)) from None


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise Failed(f"{text!r} is no age: write a number and its unit, such as 30d, 12h, 90m", code=USAGE)
    return int(found[1]) * _UNITS[found[2]]
