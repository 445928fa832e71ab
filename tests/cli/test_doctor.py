"""``doctor``: what is missing is named, with what to do."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_checking import GOOD as CARD
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.postgres import postgres_server
from tests.support.running import broker, kept_port


@pytest.fixture(autouse=True)
def _of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as on a machine where nothing is set, with a store and cards in the test's folder."""
    cards = tmp_path / "the-cards"
    cards.mkdir()
    (cards / "billing.json").write_text(json.dumps(CARD))
    monkeypatch.setenv("A2A_HANDOFF_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("A2A_HANDOFF_CARDS", str(cards))
    monkeypatch.setenv("A2A_HANDOFF_URL", f"http://127.0.0.1:{kept_port()}")


def found(run: Run, *args: str) -> tuple[int, dict[str, tuple[str, str]]]:
    code, out, _ = run("doctor", "--json", *args)
    return code, {one["part"]: (one["verdict"], one["words"]) for one in json.loads(out)}


def test_on_a_machine_where_nothing_runs_nothing_has_failed(run: Run) -> None:
    code, parts = found(run)
    assert code == 0
    assert {part: verdict for part, (verdict, _) in parts.items()} == {
        "settings": "ok",
        "store": "ok",
        "clock": "not used",
        "cards": "ok",
        "NATS": "not used",
        "collector": "not used",
        "Jaeger": "not used",
        "broker": "warning",
    }


def test_people_get_a_line_for_each_part(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()][:3] == ["settings", "store", "clock"]


def test_every_wrong_setting_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_HANDOFF_MAX_HOPS", "9")
    monkeypatch.setenv("A2A_HANDOFF_ACK_WAITS", "3")
    code, out, _ = run("doctor", "--json")
    told = [(one["part"], one["verdict"]) for one in json.loads(out)]
    assert (code, told) == (1, [("settings", "failed")] * 2)
    assert "A2A_HANDOFF_ACK_WAIT" in out


def test_a_running_broker_and_its_agents_are_looked_at(run: Run, tmp_path: Path) -> None:
    silent = kept_port()
    with socket.create_server(("127.0.0.1", 0)) as listening, broker(tmp_path) as b:
        for name, port in (("there", listening.getsockname()[1]), ("gone", silent)):
            interface = CARD["supportedInterfaces"][0] | {"url": f"http://127.0.0.1:{port}/"}
            b.register(name, card=CARD | {"supportedInterfaces": [interface]})
        b.register("cursor", platform="cursor")
        code, out, _ = run("doctor", "--json", "--url", b.url)
    agents = [(one["verdict"], one["words"]) for one in json.loads(out) if one["part"] == "agents"]
    assert code == 1
    assert agents[0][0] == "failed"
    assert agents[0][1].startswith(f"gone: http://127.0.0.1:{silent}/ cannot be connected to")
    assert agents[1] == ("failed", "1 of 2 that listen can be connected to, 1 fetch their work")


def test_an_agent_whose_address_may_not_be_called_is_named_with_the_setting(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2A_HANDOFF_ALLOW_PRIVATE_ADDRESSES", "false")
    with socket.create_server(("127.0.0.1", 0)) as listening, broker(tmp_path) as b:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        b.register(
            "there", card=CARD | {"supportedInterfaces": [CARD["supportedInterfaces"][0] | {"url": url}]}
        )
        code, out, _ = run("doctor", "--json", "--url", b.url)
    words = next(one["words"] for one in json.loads(out) if one["part"] == "agents")
    assert code == 1
    assert words.startswith(f"there: {url} may not be called")
    assert "A2A_HANDOFF_ALLOW_PRIVATE_ADDRESSES=true" in words


def test_a_file_of_another_program_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"no database at all" * 100)
    code, parts = found(run)
    assert (code, parts["store"][0]) == (1, "failed")
    assert "not an SQLite database" in parts["store"][1]
    assert file.read_bytes() == b"no database at all" * 100


def test_a_schema_that_lags_behind_is_a_warning_on_either_store(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker(tmp_path, store=f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    assert found(run)[1]["store"] == ("ok", f"{tmp_path / 'store.db'} has the schema of this version")
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("PRAGMA user_version = 1")
    assert found(run)[1]["store"][0] == "warning"
    connection.execute("PRAGMA user_version = 99")
    assert found(run)[1]["store"] == (
        "ok", f"{tmp_path / 'store.db'} has a newer schema, which this version may use",
    )  # fmt: skip
    connection.execute("DELETE FROM marks")
    connection.commit()
    connection.close()
    verdict, words = found(run)[1]["store"]
    assert verdict == "failed"
    assert "has schema 99" in words
    server = postgres_server()
    name = server.fresh()
    try:
        monkeypatch.setenv("A2A_HANDOFF_STORE", server.url(name))
        verdict, words = found(run)[1]["store"]
        assert verdict == "warning"
        assert "serve will make them" in words
    finally:
        server.drop(name)


@pytest.mark.parametrize(
    ("ahead_s", "verdict"), [(0.0, "ok"), (9.0, "ok"), (11.0, "warning"), (-11.0, "warning")]
)
def test_a_clock_that_differs_from_that_of_the_database_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, ahead_s: float, verdict: str
) -> None:
    server = postgres_server()
    name = server.fresh()
    right = time.time
    try:
        monkeypatch.setenv("A2A_HANDOFF_STORE", server.url(name))
        monkeypatch.setattr("a2a_handoff.cli.doctor.time.time", lambda: right() + ahead_s)
        said, words = found(run)[1]["clock"]
        assert said == verdict
        assert f"{abs(ahead_s):.0f}." in words
        assert ("NTP" in words) == (verdict == "warning")
    finally:
        server.drop(name)


def test_a_database_that_is_not_there_has_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_HANDOFF_STORE", "postgresql://broker:sekrit@127.0.0.1:9/handoffs")
    code, parts = found(run)
    assert (code, parts["store"][0]) == (1, "failed")
    assert "sekrit" not in parts["store"][1]


@pytest.fixture
def receiver() -> Generator[OtlpReceiver]:
    with OtlpReceiver() as made:
        yield made


def test_a_collector_takes_an_empty_request_or_has_failed(
    run: Run, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    assert found(run)[1]["collector"][0] == "ok"
    assert receiver.spans == []
    receiver.status = 503
    assert found(run)[1]["collector"] == (
        "failed", f"{receiver.endpoint}/v1/traces answers 503: spans would be dropped",
    )  # fmt: skip


def test_nats_that_does_not_answer_has_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_HANDOFF_NATS", "nats://u:s3cret@127.0.0.1:9,nats://t0ken@127.0.0.1:9")
    code, parts = found(run)
    assert (code, parts["NATS"][0]) == (1, "failed")
    assert "127.0.0.1:9" in parts["NATS"][1]
    assert not {"s3cret", "t0ken"} & set(re.findall(r"\w+", parts["NATS"][1]))


def test_a_card_that_cannot_be_used_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "the-cards" / "broken.json").write_text('{"name": 1}')
    code, parts = found(run)
    assert (code, parts["cards"][0]) == (1, "failed")
    assert "broken.json" in parts["cards"][1]


def test_the_broker_is_looked_for_where_the_settings_let_it_listen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("A2A_HANDOFF_URL", raising=False)
    with broker(tmp_path) as b:
        monkeypatch.setenv("A2A_HANDOFF_PORT", b.url.rpartition(":")[2])
        assert found(run)[1]["broker"] == ("ok", f"{b.url} is ready")
