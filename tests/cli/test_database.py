"""``db``: a store is checked, saved, restored and pruned from outside."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.postgres import Postgres, postgres_server
from tests.support.running import Broker, broker

EVENTS = 2  # of a handoff that nobody can take


def hand_off(b: Broker, times: int = 2) -> list[str]:
    """Handoffs that end at once, for nobody can take them."""
    return [b.send("hello", context={"target_agent": f"nobody-{n}"})["id"] for n in range(times)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The store of a broker that did two handoffs and was stopped."""
    with broker(tmp_path) as b:
        hand_off(b)
    return tmp_path / "broker.db"


@pytest.fixture
def database() -> Generator[tuple[Postgres, str]]:
    server = postgres_server()
    name = server.fresh()
    yield server, name
    server.drop(name)


def store(file: Path) -> str:
    return f"--store=sqlite:///{file}"


# --- check ---------------------------------------------------------------------------------------


def test_a_sound_store_is_counted(run: Run, file: Path) -> None:
    assert run("db", "check", store(file)) == (
        0,
        f"sqlite:///{file}: 2 handoffs, {2 * EVENTS} events, 0 faults\n",
        "",
    )


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("DELETE FROM events WHERE position = 2", "ends at event 1, its state is at 2"),
        ("DELETE FROM handoffs WHERE number = 1", "has a log and no state"),
        ("UPDATE handoffs SET snapshot = (SELECT snapshot FROM handoffs WHERE number = 2) WHERE number = 1",
         "is not what its log gives"),
    ],
)  # fmt: skip
def test_a_state_that_its_log_does_not_give_is_found(run: Run, file: Path, harm: str, said: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute(harm)
    connection.commit()
    connection.close()
    code, out, err = run("db", "check", store(file))
    assert (code, out.split(", ")[-1]) == (1, "1 faults\n")
    assert said in err


def test_a_damaged_file_is_found(run: Run, file: Path) -> None:
    pages = bytearray(file.read_bytes())
    pages[4096 * 2 : 4096 * 6] = b"\xa5" * 4096 * 4
    file.write_bytes(pages)
    code, _, err = run("db", "check", store(file))
    assert code == 1
    assert "damaged" in err
    assert "restore a backup" in err


def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    code, _, err = run("db", "check", store(tmp_path / "none.db"))
    assert (code, err) == (2, f"a2a-handoff: there is no store {tmp_path / 'none.db'}\n")
    assert not (tmp_path / "none.db").exists()


# --- backup and restore --------------------------------------------------------------------------


def test_a_backup_made_beside_a_running_broker_is_whole_and_starts_a_broker(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "saved.db"
    with broker(tmp_path) as b:
        ids = hand_off(b)
        code, out, _ = run("db", "backup", str(saved), store(tmp_path / "broker.db"))
        assert (code, out) == (0, f"{saved}: {saved.stat().st_size:,} bytes\n")
        hand_off(b, times=1)
    assert "2 handoffs" in run("db", "check", store(saved))[1]
    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.copy(saved, restored / "broker.db")
    with broker(restored) as b:
        assert {b.http.get(f"/api/handoffs/{one}").json()["state"] for one in ids} == {"returned"}
        assert b.http.get("/api/handoffs").json()["total"] == len(ids)
        hand_off(b)
    assert "4 handoffs" in run("db", "check", store(restored / "broker.db"))[1]


def test_a_backup_overwrites_nothing_and_leaves_nothing_half_done(
    run: Run, file: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there.db"
    there.write_text("mine")
    assert run("db", "backup", str(there), store(file))[0] == 1
    assert there.read_text() == "mine"
    assert run("db", "backup", str(tmp_path / "no" / "where.db"), store(file))[0] == 1
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.parametrize("place", ["u:s3/cr@et@h/db", "u:s3cret@h/db", "u@h/db?password=s3cret"])
def test_a_password_is_not_in_what_is_said(run: Run, place: str) -> None:
    code, out, err = run("db", "backup", "x.dump", f"--store=postgresql://{place}")
    assert code == 2
    assert "pg_dump" in err
    assert not any(part in out + err for part in ("s3", "cret", "et@"))


def test_postgresql_is_saved_and_restored_by_its_own_programs(
    run: Run, database: tuple[Postgres, str], tmp_path: Path
) -> None:
    server, name = database
    with broker(tmp_path, store=server.url(name)) as b:
        hand_off(b)
    dump = tmp_path / "saved.dump"
    code, _, err = run("db", "backup", str(dump), f"--store={server.url(name)}")
    assert code == 2
    assert f"pg_dump --format=custom --file={dump}" in err
    programs = server.programs
    subprocess.run(
        [programs / "pg_dump", "--format=custom", f"--file={dump}", server.url(name)], check=True, timeout=60
    )
    empty = server.fresh()
    try:
        subprocess.run(
            [programs / "pg_restore", "--no-owner", f"--dbname={server.url(empty)}", dump],
            check=True,
            timeout=60,
        )
        assert "2 handoffs" in run("db", "check", f"--store={server.url(empty)}")[1]
    finally:
        server.drop(empty)


# --- prune and migrate ---------------------------------------------------------------------------


def test_what_is_older_goes_and_the_newest_chain_stays(run: Run, file: Path) -> None:
    assert (
        run("db", "prune", "--older-than", "1d", store(file))[1] == f"sqlite:///{file}: 0 handoffs removed\n"
    )
    assert (
        run("db", "prune", "--older-than", "0s", store(file))[1] == f"sqlite:///{file}: 1 handoffs removed\n"
    )
    assert f"1 handoffs, {EVENTS} events, 0 faults" in run("db", "check", store(file))[1]


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1.5h", "1w"])
def test_an_age_is_a_number_with_its_unit(run: Run, file: Path, age: str) -> None:
    code, _, err = run("db", "prune", f"--older-than={age}", store(file))
    assert code == 2
    assert "30d" in err


def test_a_store_in_use_is_left_alone(run: Run, tmp_path: Path) -> None:
    with broker(tmp_path):
        for command in (("prune", "--older-than", "1d"), ("check",), ("migrate",)):
            code, _, err = run("db", *command, store(tmp_path / "broker.db"))
            assert code == 1
            assert "in use by another broker" in err


def test_postgresql_is_checked_pruned_and_migrated_beside_its_broker(
    run: Run, database: tuple[Postgres, str], tmp_path: Path
) -> None:
    server, name = database
    url = f"--store={server.url(name)}"
    with broker(tmp_path, store=server.url(name)) as b:
        hand_off(b)
        assert run("db", "migrate", url)[0] == 0
        assert "2 handoffs" in run("db", "check", url)[1]
        assert run("db", "prune", "--older-than", "0s", url)[1].endswith(": 2 handoffs removed\n")
        hand_off(b)
        assert "2 handoffs" in run("db", "check", url)[1]
