"""What is particular to the store on SQLite: grouping, faults of the file, and the plans of its queries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from a2a_handoff.core.events import Schedule, State, WorkKind
from a2a_handoff.ports import (
    ChainTaken,
    Committed,
    DuplicateRequest,
    HandoffQuery,
    RequestKey,
    StoreUnavailable,
    VersionConflict,
    WorkKey,
)
from a2a_handoff.stores import SqliteStore, open_store, sqlite_webhooks, sqlite_work, sqlite_writer
from a2a_handoff.stores.migrations import SINCE_MARK, scripts
from a2a_handoff.stores.sqlite_file import DatabaseFile
from a2a_handoff.stores.sqlite_listing import page_statement, total_statement, values
from a2a_handoff.stores.sqlite_writer import Writer
from tests.support.builders import (
    NOW,
    commit_of,
    completed_event,
    first_write,
    make_agent,
    next_write,
    offered_event,
    output_event,
)

DELIVER = Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1)
WAIT_S = 10


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def writer_of(store: SqliteStore) -> Writer:
    assert store._writer is not None
    return store._writer


class Hold:
    """Keeps the writer busy, so that what is submitted meanwhile becomes one transaction."""

    def __init__(self, store: SqliteStore) -> None:
        self._free = threading.Event()
        self._began = threading.Event()
        self._store = store

    async def __aenter__(self) -> None:
        def wait(_: sqlite3.Connection) -> None:
            self._began.set()
            assert self._free.wait(WAIT_S)

        self._waiting = writer_of(self._store).submit(wait)
        assert await asyncio.to_thread(self._began.wait, WAIT_S)

    async def __aexit__(self, *_: object) -> None:
        self._free.set()
        await self._waiting


# --- group commit --------------------------------------------------------------------------------


def test_what_waits_is_committed_together_and_a_refused_commit_fails_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store.db") as store:
            key = RequestKey(tenant="default", sender="sender", key="k", digest="d", handoff_id="h-1")
            first = first_write("h-1", actions=(DELIVER,))
            commits = [
                commit_of(first, request_key=key, alias="a", alias_owner="o"),
                commit_of(first_write("h-2"), request_key=key),
                commit_of(first_write("h-3", correlation_id="chain-of-h-1", tenant="other")),
                commit_of(first_write("h-1")),
                commit_of(next_write(first.handoff, offered_event())),
                commit_of(first_write("h-4"), alias="a", alias_owner="o"),
                commit_of(first_write("h-5", correlation_id="chain-of-h-1")),
            ]
            async with Hold(store):
                results = [asyncio.ensure_future(store.commit(commit)) for commit in commits]
                claims = asyncio.ensure_future(store.claim_work(now=NOW + 30, limit=5))
                await asyncio.sleep(0)
                transactions = count_transactions(store)
            answers = await asyncio.gather(*results, return_exceptions=True)
            assert [type(answer) for answer in answers] == [
                Committed,
                DuplicateRequest,
                ChainTaken,
                VersionConflict,
                Committed,
                DuplicateRequest,
                Committed,
            ]
            assert [work.claims for work in await claims] == [2]
            # The one that was held, and the one with everything else.
            assert len(transactions) == 2
            assert [(one.handoff_id, one.seq) for one in await store.read_log()] == [
                ("h-1", 1),
                ("h-1", 2),
                ("h-5", 1),
            ]

    asyncio.run(main())


def count_transactions(store: SqliteStore) -> list[str]:
    """Fills up with each COMMIT of the writer."""
    seen: list[str] = []
    writer_of(store)._connection.set_trace_callback(
        lambda statement: seen.append(statement) if statement == "COMMIT" else None
    )
    return seen


@pytest.mark.parametrize(
    ("poison", "error"),
    [
        (
            commit_of(first_write("p", actions=(changed(DELIVER, due_at=float("nan")),))),
            sqlite3.IntegrityError,
        ),
        (commit_of(first_write("p", actions=(changed(DELIVER, attempt=2**70),))), OverflowError),
        (
            commit_of(
                first_write("p"),
                request_key=RequestKey(tenant="t", sender="s", key="\ud800", digest="", handoff_id="p"),
            ),
            UnicodeEncodeError,
        ),
    ],
    ids=["not a time", "too big", "not text"],
)
def test_a_value_that_cannot_be_stored_fails_its_own_commit_only(
    tmp_path: Path, poison: Any, error: type[Exception]
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store.db") as store:
            async with Hold(store):
                good = asyncio.ensure_future(store.commit(commit_of(first_write("h-1"))))
                bad = asyncio.ensure_future(store.commit(poison))
                agent = asyncio.ensure_future(store.put_agent(make_agent()))
                last = asyncio.ensure_future(store.commit(commit_of(first_write("h-2"))))
                await asyncio.sleep(0)
            with pytest.raises(error):
                await bad
            assert [one.position for one in (*(await good).recorded, *(await last).recorded)] == [1, 2]
            assert await agent is True
            assert await store.load_handoff("p") is None

    asyncio.run(main())


def test_more_rows_than_one_statement_takes_are_written_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store.db") as store:
            outputs = [output_event(b'"%d"' % n) for n in range(777)]
            write = first_write("h-1", *outputs)
            async with Hold(store):
                all_at_once = [
                    asyncio.ensure_future(store.commit(commit_of(first_write(f"i-{n}", actions=(DELIVER,)))))
                    for n in range(600)
                ]
                await asyncio.sleep(0)
            await asyncio.gather(*all_at_once)
            await store.commit(commit_of(write))
            assert [one.event for one in await store.read_events("h-1")] == list(write.events)
            positions: list[int] = []
            while page := await store.read_log(after=len(positions), limit=2000):
                positions += [one.position for one in page]
            assert positions == list(range(1, 1379))

    asyncio.run(main())


def test_a_caller_who_is_gone_gives_back_what_was_claimed_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store.db") as store:
            async with Hold(store):
                commit = asyncio.ensure_future(
                    store.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
                )
                await asyncio.sleep(0)
                commit.cancel()
            # Whatever is written from now on comes after the claims were given back.
            await store.set_mark("turn", 1)
            await store.set_mark("turn", 2)
            (work,) = await store.claim_work(now=NOW, limit=5)
            assert (work.key.handoff_id, work.claims) == ("h-1", 2)
            await store.release_work(work.key, due_at=NOW)
            async with Hold(store):
                claim = asyncio.ensure_future(store.claim_work(now=NOW, limit=5))
                await asyncio.sleep(0)
                claim.cancel()
            await store.set_mark("turn", 3)
            await store.set_mark("turn", 4)
            assert len(await store.claim_work(now=NOW, limit=5)) == 1

    asyncio.run(main())


# --- opening and closing -------------------------------------------------------------------------


def test_closing_writes_what_was_accepted_and_empties_the_log(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        accepted = [asyncio.ensure_future(store.commit(commit_of(first_write(f"h-{n}")))) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*accepted)) == 50
        assert not path.with_name("store.db-wal").exists()
        async with opened(path) as store:
            assert len(await store.read_log()) == 50

    asyncio.run(main())


def test_the_log_stays_bounded_under_load(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    # How long it is is looked at after each commit.
    limit = 2 * sqlite_writer.LOG_PAGES_MAX * 4096 + 1_100_000

    async def main() -> None:
        async with opened(path) as store:
            write = first_write("h-1")
            await store.commit(commit_of(write))
            for _ in range(160):
                write = next_write(write.handoff, output_event(b"x" * 1_000_000))
                await store.commit(commit_of(write))
                assert path.with_name("store.db-wal").stat().st_size < limit

    asyncio.run(main())


def test_missing_directories_are_made_and_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "store.db"

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(commit_of(first_write("h-1")))

    asyncio.run(main())
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("through", ["path", "link"])
def test_a_second_store_on_the_file_fails_at_once_and_names_it(tmp_path: Path, through: str) -> None:
    path = tmp_path / "store.db"
    link = tmp_path / "link.db"
    link.symlink_to(path)

    async def main() -> None:
        async with opened(path) as store:
            with pytest.raises(StoreUnavailable, match=f"{re.escape(str(path))} is in use by another broker"):
                await SqliteStore(path if through == "path" else link).open()
            await store.commit(commit_of(first_write("h-1")))
        async with opened(path):
            pass

    asyncio.run(main())


def test_a_second_process_on_the_file_fails_at_once_with_the_absolute_path(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib; from a2a_handoff.stores import SqliteStore\n"
        "asyncio.run(SqliteStore(pathlib.Path('store.db')).open())"
    )

    async def main() -> subprocess.CompletedProcess[str]:
        async with opened(tmp_path / "store.db"):
            return await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", script],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

    second = asyncio.run(main())
    assert second.returncode == 1
    assert f"StoreUnavailable: The store {tmp_path / 'store.db'} is in use by another broker" in second.stderr


NOBODY = 65534


def open_and_fail(path: Path) -> str:
    async def main() -> str:
        with pytest.raises(StoreUnavailable) as raised:
            await SqliteStore(path).open()
        return str(raised.value)

    return asyncio.run(main())


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 100)
    message = open_and_fail(path)
    assert message == f"The store {path} is not an SQLite database: name another file (SQLITE_NOTADB)."
    assert path.read_text() == "dear diary, " * 100
    # The refusal lets go of the file.
    assert "not an SQLite database" in open_and_fail(path)


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    assert "belongs to another program" in open_and_fail(path)


def test_a_database_of_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        async with opened(path):
            pass

    asyncio.run(main())
    known = len(scripts("sqlite"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
        for since in (known + 1, None):
            connection.execute("DELETE FROM marks")
            if since:
                connection.execute("INSERT INTO marks VALUES (?, ?)", (SINCE_MARK, since))
            assert f"has schema 99, this version knows {known}: upgrade a2a-handoff" in open_and_fail(path)


def test_a_database_of_a_newer_version_that_says_so_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def use() -> None:
        async with opened(path) as store:
            await store.commit(commit_of(first_write(f"h-{await store.log_end()}", offered_event())))

    asyncio.run(use())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
    asyncio.run(use())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)
        assert connection.execute("SELECT count(*) FROM handoffs").fetchone() == (2,)
    assert DatabaseFile(path).behind() == len(scripts("sqlite")) - 99


def test_a_path_below_a_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = open_and_fail(tmp_path / "file" / "store.db")
    assert f"{tmp_path / 'file' / 'store.db'} cannot be opened" in message
    assert "check that its directory exists and may be written" in message


def test_a_directory_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    assert "cannot be opened" in open_and_fail(tmp_path / "store.db")


@contextmanager
def without_privileges() -> Generator[None]:
    """Root may write everywhere, so it becomes nobody for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_may_not_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "store.db"
        path.touch(mode=0o444)
        with without_privileges():
            assert "may not be written" in open_and_fail(path)


def test_a_damaged_database_says_so_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def fill() -> None:
        async with opened(path) as store:
            await store.commit(commit_of(*[first_write(f"h-{n}") for n in range(100)]))

    async def look() -> None:
        async with opened(path) as store:
            with pytest.raises(StoreUnavailable, match=f"{re.escape(str(path))} is damaged: stop the broker"):
                await store.list_handoffs(HandoffQuery(tenant="default", limit=100))
            with pytest.raises(StoreUnavailable, match="is damaged"):
                await store.commit(commit_of(first_write("h-0")))

    asyncio.run(fill())
    connection = sqlite3.connect(path)
    pages = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'handoffs' AND rootpage > 0"
    ).fetchall()
    connection.close()
    with path.open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    asyncio.run(look())


def test_a_full_disk_refuses_and_room_on_it_is_enough_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(commit_of(first_write("h-1")))
            writer = writer_of(store)
            # SQLite gives the same error for a database at its greatest size as for a full disk.
            await writer.submit(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall())
            big = commit_of(first_write("h-2", message=b"x" * 100_000, actions=(DELIVER,)))
            full = f"The store {path} has no room left on its disk: free some; the broker goes on by itself"
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=re.escape(full)):
                    await store.commit(big)
            assert await store.load_handoff("h-2") is None
            assert [one.position for one in await store.read_log()] == [1]
            await writer.submit(
                lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchall()
            )
            committed = await store.commit(big)
            assert [one.position for one in committed.recorded] == [2]
            assert len(committed.claimed) == 1

    asyncio.run(main())


def test_another_program_that_holds_the_lock_too_long_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_handoff.stores.sqlite_file.BUSY_WAIT_S", 0.05)
    path = tmp_path / "store.db"

    async def main() -> None:
        async with opened(path) as store:
            shell = sqlite3.connect(path, isolation_level=None)
            shell.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="is locked by another program"):
                await store.commit(commit_of(first_write("h-1")))
            shell.execute("ROLLBACK")
            shell.close()
            await store.commit(commit_of(first_write("h-1")))

    asyncio.run(main())


# --- URLs ----------------------------------------------------------------------------------------


def test_a_url_with_three_slashes_is_relative_and_with_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        for url in ("sqlite:///here.db", f"sqlite:///{tmp_path}/there.db"):
            store = open_store(url)
            await store.open()
            await store.close()

    asyncio.run(main())
    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "there.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "/var/store.db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///dir/",
        "sqlite://host/store.db",
        "sqlite:///store.db?mode=ro",
        "mysql://user:secret@host/db",
    ],
)
def test_any_other_url_is_refused_without_repeating_what_may_be_secret(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///") as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


# --- plans ---------------------------------------------------------------------------------------

FEW = frozenset({State.OFFERED, State.FAILED, State.RETURNED})
QUERIES = [
    HandoffQuery(
        tenant="default",
        sender=sender,
        agent=agent,
        holder=holder,
        face=face,
        states=states,
        correlation_id=correlation_id,
        context_id=context_id,
        updated_after=updated_after,
        before=before,
    )
    for sender, agent, holder, face, states, correlation_id, context_id, updated_after, before in product(
        ("", "anna"),
        ("", "bert"),
        ("", "carl"),
        ("", "dora"),
        (frozenset[State](), frozenset({State.OFFERED, State.COMPLETED}), FEW),
        ("", "chain"),
        ("", "context"),
        (None, NOW),
        (None, (NOW, "h-1")),
    )
]
IN_ROWS = {
    sqlite_writer._FIND_VERSIONS: 1,
    sqlite_writer._FIND_CHAINS: 1,
    sqlite_writer._FIND_REQUESTS: 3,
    sqlite_writer._FIND_ALIASES: 3,
    sqlite_writer._VOID_HANDOFFS: 1,
    sqlite_writer._VOID_KINDS: 2,
    sqlite_writer._VOID_KEYS: 4,
    sqlite_writer._FIND_OCCUPIED: 1,
    sqlite_writer._FIND_HELD: 2,
}


@pytest.fixture
def schema(tmp_path: Path) -> sqlite3.Connection:
    file = DatabaseFile(tmp_path / "store.db")
    connection = file.connect()
    file.migrate(connection)
    return connection


def plan(connection: sqlite3.Connection, statement: str, parameters: Any) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def scans(steps: list[str]) -> list[str]:
    tables = ("handoffs", "events", "work", "chains", "request_keys", "aliases")
    return [step for step in steps if re.match(rf"SCAN ({'|'.join(tables)})\b", step)]


def test_no_listing_scans_the_table(schema: sqlite3.Connection) -> None:
    for query in QUERIES:
        for statement in (page_statement(query), total_statement(query)):
            steps = plan(schema, statement, values(query))
            assert scans(steps) == [], (query, steps)
            assert any("SEARCH handoffs USING" in step for step in steps)
    schema.close()


def test_a_plain_listing_needs_no_sorting(schema: sqlite3.Connection) -> None:
    for query in (HandoffQuery(tenant="default"), HandoffQuery(tenant="default", sender="anna")):
        steps = plan(schema, page_statement(query), values(query))
        assert "USE TEMP B-TREE FOR ORDER BY" not in steps[:-1]
        steps = plan(schema, total_statement(query), values(query))
        assert any("USING COVERING INDEX" in step for step in steps)
    schema.close()


@pytest.mark.parametrize("agent", ["", "anna"])
def test_a_listing_of_few_among_many_looks_at_those_few(schema: sqlite3.Connection, agent: str) -> None:
    for query in (
        HandoffQuery(tenant="default", states=FEW, agent=agent),
        HandoffQuery(tenant="default", states=FEW),
    ):
        for statement in (page_statement(query), total_statement(query)):
            steps = [step for step in plan(schema, statement, values(query)) if "handoffs" in step]
            found = [re.search(r"INDEX (\w+)", step) for step in steps]
            assert {one[1] for one in found if one} == {"handoffs_open", "handoffs_without_result"}, steps
            for step in steps:
                assert re.search(r"tenant=\?", step), step
                assert re.search(r"state=\?", step), step
    schema.close()


@pytest.mark.parametrize("rows", [1, 2, 256])
def test_no_look_up_of_the_writer_scans_a_table(schema: sqlite3.Connection, rows: int) -> None:
    for head, width in IN_ROWS.items():
        tail = sqlite_writer._OF_HOLDER if head is sqlite_writer._FIND_HELD else sqlite_writer._CLOSE
        statement = sqlite_writer._statement(head, width, rows, tail)
        steps = plan(schema, statement, ["x"] * (width * rows))
        assert scans(steps) == [], steps
        if head is sqlite_writer._FIND_HELD:  # of what is open with that agent, not of all that is open
            assert any("handoffs_open (state=? AND tenant=? AND holder=?)" in step for step in steps), steps
    schema.close()


def test_work_is_claimed_renewed_and_released_by_index(schema: sqlite3.Connection) -> None:
    names = dict.fromkeys(
        ("owner", "until", "now", "limit", "due_at", "handoff_id", "kind", "attempt", "ref"), 1
    )
    for statement in (sqlite_work._CLAIM, sqlite_work._RELEASE, sqlite_work._RENEW):
        steps = plan(schema, statement, names)
        assert scans(steps) == [], steps
    # The first free item in the index: a walk that ends at once.
    assert plan(schema, sqlite_work._NEXT_DUE, ()) == ["SCAN work USING COVERING INDEX work_by_wake"]
    (late, *_) = plan(schema, sqlite_work._LATE, (NOW,))
    assert late == "SEARCH work USING COVERING INDEX work_by_wake (wake_at<?)"
    schema.close()


def test_webhooks_are_found_by_their_handoff_and_go_with_it(schema: sqlite3.Connection) -> None:
    for statement in (sqlite_webhooks._LIST, sqlite_webhooks._SAVE, sqlite_webhooks._DELETE):
        steps = plan(schema, statement, ["x"] * statement.count("?"))
        assert any("SEARCH webhooks USING INDEX" in step for step in steps), steps
    columns = {row[1]: 0 for row in schema.execute("PRAGMA table_info(handoffs)")}
    for number, handoff_id in enumerate(("h-1", "h-2")):
        row = columns | {"number": number, "id": handoff_id, "snapshot": b""}
        schema.execute(f"INSERT INTO handoffs VALUES ({', '.join('?' * len(row))})", [*row.values()])
        schema.execute("INSERT INTO webhooks VALUES (?, 'w-1', 'e-1', x'80')", (handoff_id,))
    schema.execute("DELETE FROM handoffs WHERE id = 'h-1'")
    assert schema.execute("SELECT handoff_id FROM webhooks").fetchall() == [("h-2",)]
    schema.close()


# --- the way of a work item through the file -----------------------------------------------------


def test_leases_end_with_the_process_even_if_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        killed = SqliteStore(path)
        await killed.open()
        await killed.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
        # As after a kill: the lock is gone, the lease is in the file.
        killed._file.unlock()
        async with opened(path) as store:
            (work,) = await store.claim_work(now=NOW, limit=5)
            assert work.key == WorkKey(handoff_id="h-1", kind=WorkKind.DELIVER, attempt=1)
            assert work.orphaned
        await killed.close()

    asyncio.run(main())


def test_reading_goes_on_while_the_writer_is_busy(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store.db") as store:
            write = first_write("h-1", offered_event())
            await store.commit(commit_of(write))
            async with Hold(store):
                end = asyncio.ensure_future(
                    store.commit(commit_of(next_write(write.handoff, completed_event())))
                )
                found = await asyncio.gather(*[store.load_handoff("h-1") for _ in range(20)])
                assert found == [write.handoff] * 20
            await end

    asyncio.run(main())
