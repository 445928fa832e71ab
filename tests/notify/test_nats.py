"""Wake-ups between brokers, over a real NATS server that comes and goes."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from a2a_handoff.app import Application, ConfigurationError
from a2a_handoff.config import Settings
from a2a_handoff.notify.link import Access, NatsClient, NatsLink
from a2a_handoff.notify.nats import PENDING_MAX, NatsNotifier, wake_subject
from tests.notify.credentials import credentials
from tests.support.nats import Nats, nats_server
from tests.support.running import broker, kept_port
from tests.support.streams import listening
from tests.support.wire import eventually, metric

WAIT_S = 20.0
_T = TypeVar("_T")


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(asyncio.wait_for(work, 2 * WAIT_S))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Nats]:
    """A server that the tests leave alone."""
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@asynccontextmanager
async def _notifier(
    url: str, *, prefix: str = "test", answer_s: float = 5.0, **access: Any
) -> AsyncGenerator[NatsNotifier]:
    """One that does not look by itself while it is connected."""
    link = NatsLink(Access(servers=(url,), **access), name="test", ask_every_s=0.1, answer_s=answer_s)
    notifier = NatsNotifier(link, prefix=prefix, look_s=3_600)
    notifier.start()
    try:
        yield notifier
    finally:
        await notifier.close()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what it waits for tells nobody
            await asyncio.sleep(0.01)


async def _all_connected(*notifiers: NatsNotifier, are: bool = True) -> None:
    await _until(lambda: all(each.connected is are for each in notifiers))


async def _wakes(teller: NatsNotifier, hearer: NatsNotifier, topic: str) -> bool:
    """Whether a publish there wakes a waiter here."""
    with hearer.listen(topic) as listener:
        await listener.wait(timeout_s=0.01)  # what the connection itself woke
        teller.publish(topic)
        return await listener.wait(timeout_s=WAIT_S)


def _pair(
    url: str,
    scene: Callable[[NatsNotifier, NatsNotifier], Awaitable[_T]],
    prefix: str = "test",
    *,
    answer_s: float = 5.0,
) -> _T:
    async def whole() -> _T:
        async with (
            _notifier(url, prefix=prefix, answer_s=answer_s) as one,
            _notifier(url, prefix=prefix, answer_s=answer_s) as other,
        ):
            await _all_connected(one, other)
            return await scene(one, other)

    return _run(whole())


# --- what is told --------------------------------------------------------------------------------


def test_what_is_published_in_one_broker_wakes_who_waits_in_another(server: Nats) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> list[bool]:
        return [await _wakes(one, other, "log"), await _wakes(other, one, "inbox:default:editor")]

    assert _pair(server.url, scene, "both-ways") == [True, True]


def test_what_is_woken_here_alone_is_told_to_nobody(server: Nats) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> int:
        one.wake("told:here")
        assert await _wakes(one, other, "log")
        return other.hints["heard"]

    assert _pair(server.url, scene, "here") == 1


def test_ones_own_hints_do_not_come_back(server: Nats) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> dict[str, int]:
        for _ in range(3):
            assert await _wakes(one, other, "log")
        assert await _wakes(other, one, "end")
        return one.hints

    assert _pair(server.url, scene, "echo") == {"sent": 3, "heard": 1, "dropped": 0, "overrun": 0}


def test_hints_that_gather_are_told_once(server: Nats) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> int:
        with other.listen("last") as listener:
            for number in range(3_000):
                one.publish("log")
                one.publish(f"handoff-{number % 3}")
            one.publish("last")
            assert await listener.wait(timeout_s=WAIT_S)
        return one.hints["sent"]

    assert _pair(server.url, scene, "gather") == 5


def test_more_hints_than_can_be_kept_become_one_for_everything(server: Nats) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> bool:
        with other.listen("the first of many") as listener:
            await listener.wait(timeout_s=0.01)
            one.publish("the first of many")
            for number in range(PENDING_MAX):
                one.publish(f"handoff-{number}")
            assert await listener.wait(timeout_s=WAIT_S)
        return one.hints["sent"] < 10

    assert _pair(server.url, scene, "everything")


def test_deployments_with_another_prefix_hear_nothing(server: Nats) -> None:
    async def scene() -> int:
        async with (
            _notifier(server.url, prefix="blue") as one,
            _notifier(server.url, prefix="blue") as its_own,
            _notifier(server.url, prefix="green") as other,
        ):
            await _all_connected(one, its_own, other)
            assert await _wakes(one, its_own, "log")
            return other.hints["heard"]

    assert _run(scene()) == 0


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"{}", b'["a", 1]', b'"log"', b"[" * 5_000])
def test_what_is_no_hint_is_passed_over(server: Nats, payload: bytes) -> None:
    async def scene(one: NatsNotifier, other: NatsNotifier) -> int:
        stranger = await nats.connect(server.url)
        await stranger.publish(wake_subject("noise"), payload)
        await stranger.flush()
        await stranger.close()
        assert await _wakes(one, other, "log")
        return other.hints["heard"]

    assert _pair(server.url, scene, "noise") == 1


# --- when NATS is away ---------------------------------------------------------------------------


def test_nobody_waits_for_a_server_that_is_not_there_and_it_is_found_when_it_comes(tmp_path: Path) -> None:
    server = Nats(tmp_path)

    async def scene() -> list[Any]:
        async with _notifier(server.url) as one, _notifier(server.url) as other:
            began = time.monotonic()
            with one.listen("log") as listener:
                one.publish("log")
                woken = await listener.wait(timeout_s=WAIT_S)
            await _until(lambda: one.hints["dropped"] == 1)
            at_once = time.monotonic() - began < WAIT_S / 4
            await asyncio.to_thread(server.start)
            await _all_connected(one, other)
            return [woken, at_once, await _wakes(one, other, "log")]

    try:
        assert _run(scene()) == [True, True, True]
    finally:
        server.kill()


def test_a_hint_that_was_lost_is_made_up_for_by_a_look() -> None:
    async def scene() -> bool:
        link = NatsLink(Access(servers=(f"nats://127.0.0.1:{kept_port()}",)), name="test")
        notifier = NatsNotifier(link, prefix="test", away_look_s=0.05)
        notifier.start()
        try:
            with notifier.listen("log") as listener:
                return await listener.wait(timeout_s=WAIT_S)
        finally:
            await notifier.close()

    assert _run(scene())


@pytest.mark.parametrize("end", [Nats.kill, Nats.stop])
def test_a_server_that_was_restarted_is_found_again(tmp_path: Path, end: Callable[[Nats], None]) -> None:
    with nats_server(tmp_path) as server:

        async def scene(one: NatsNotifier, other: NatsNotifier) -> bool:
            for _ in range(2):
                with other.listen("nothing") as listener:
                    await asyncio.to_thread(end, server)
                    await _all_connected(one, other, are=False)
                    assert await listener.wait(
                        timeout_s=WAIT_S
                    )  # who waited looks once, for a hint may be lost
                await asyncio.to_thread(server.start)
                await _all_connected(one, other)
            return await _wakes(one, other, "log")

        assert _pair(server.url, scene)


def test_a_server_that_says_nothing_counts_as_away_and_holds_nobody_up(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:

        async def scene(one: NatsNotifier, other: NatsNotifier) -> bool:
            server.freeze()
            slowest = 0.0
            while one.connected or other.connected:
                began = time.monotonic()
                for number in range(500):
                    one.publish(f"handoff-{number}-{'x' * 1_000}")
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.01)
            server.thaw()
            await _all_connected(one, other)
            assert slowest < WAIT_S / 4
            return await _wakes(one, other, "log")

        assert _pair(server.url, scene, answer_s=1.0)


# --- how to get in -------------------------------------------------------------------------------


def test_an_answer_for_which_nobody_waits_any_more_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(server: Nats) -> None:
        client = NatsClient()
        await client.connect(server.url, allow_reconnect=False)
        hears = await client.subscribe("there")
        server.freeze()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.flush()
        server.thaw()
        await client.publish("there", b"again")
        assert (await hears.next_msg(timeout=WAIT_S)).data == b"again"
        await client.flush()
        await client.abandon()

    with nats_server(tmp_path) as server:
        _run(main(server))
    assert caplog.records == []


def test_user_and_password_or_a_token_stand_in_the_address(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        nats_server(tmp_path / "a", 'authorization { user: "u", password: "p:w" }') as by_password,
        nats_server(tmp_path / "b", 'authorization { token: "t0ken" }') as by_token,
    ):
        for url in (
            by_password.url.replace("//", "//u:p%3Aw@"),
            by_token.url.replace("//", "//t0ken@"),
        ):

            async def scene(one: NatsNotifier, other: NatsNotifier) -> bool:
                return await _wakes(one, other, "log")

            assert _pair(url, scene)


def test_a_wrong_password_is_told_once_and_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with nats_server(tmp_path, 'authorization { user: "u", password: "right" }') as server:

        async def scene() -> None:
            async with _notifier(server.url.replace("//", "//u:s3cret@")) as one:
                await _until(lambda: caplog.records)
                await asyncio.sleep(0.5)
                assert not one.connected

        with caplog.at_level(logging.INFO, "a2a_handoff"):
            _run(scene())
    (said,) = [record.getMessage() for record in caplog.records if record.name == "a2a_handoff.nats"]
    assert "Authorization Violation" in said
    assert "s3cret" not in caplog.text


def test_credentials_are_read_from_a_file_anew_for_each_connection(tmp_path: Path) -> None:
    good, config = credentials(tmp_path)
    used = tmp_path / "used.creds"
    used.write_text("not yet")
    with nats_server(tmp_path, config, jetstream=False) as server:

        async def scene() -> list[bool]:
            async with _notifier(server.url, creds=used) as one, _notifier(server.url, creds=good) as other:
                await _all_connected(other)
                before = one.connected
                used.write_bytes(good.read_bytes())
                await _all_connected(one)
                return [before, await _wakes(one, other, "log")]

        assert _run(scene()) == [False, True]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nats.test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_tls_is_spoken_with_both_sides_known(
    tmp_path: Path, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{certificate}", ca_file: "{certificate}", verify: true }}'
    with nats_server(tmp_path, tls) as server:

        async def scene() -> list[Any]:
            url = server.url.replace("nats:", "tls:")
            known: dict[str, Any] = {"ca": certificate, "cert": certificate}
            async with _notifier(url, **known) as one, _notifier(url, **known) as other:
                await _all_connected(one, other)
                woken = await _wakes(one, other, "log")
            async with _notifier(url) as trusts_nobody, _notifier(url, ca=certificate) as shows_nothing:
                await _until(lambda: len(caplog.records) >= 2)
                return [woken, trusts_nobody.connected, shows_nothing.connected]

        assert _run(scene()) == [True, False, False]


def test_a_password_is_not_sent_where_tls_is_asked_for_and_not_spoken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.11.0","headers":true,"max_payload":1048576}\r\n')
        heard.append(await reader.read(1_000))

    async def scene() -> None:
        async with listening(serve) as port:
            async with _notifier(f"tls://u:s3cret@127.0.0.1:{port}"):
                await _until(lambda: caplog.records)
            await _until(lambda: heard)

    with caplog.at_level(logging.INFO, "a2a_handoff"):
        _run(scene())
    assert "does not speak TLS" in caplog.text
    assert not any(heard)


# --- the broker ----------------------------------------------------------------------------------


def test_a_broker_without_nats_is_ready_and_says_that_it_is_degraded(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    server = Nats(tmp_path / "nats")
    with broker(tmp_path, nats=server.url) as b:
        probe = b.http.get("/readyz")
        assert probe.status_code == 200
        assert probe.text.startswith("ready\ndegraded: NATS is away")
        b.register("worker")
        assert b.send("hello", wait=False, context={"target_agent": "worker"})["id"]
        eventually(lambda: metric(b.http.get("/metrics").text, "handoff_wakeup_hints_total") > 0)
        text = b.http.get("/metrics").text
        assert metric(text, "handoff_nats_connected") == 0
        assert metric(text, "handoff_wakeup_hints_total", handoff_wakeup_result="dropped") > 0
        server.start()
        try:
            eventually(lambda: b.http.get("/readyz").text == "ready\n")
            assert metric(b.http.get("/metrics").text, "handoff_nats_connected") == 1
        finally:
            server.kill()


def test_a_broker_that_uses_no_nats_measures_nothing_of_it(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        assert b.http.get("/readyz").text == "ready\n"
        samples = [line for line in b.http.get("/metrics").text.splitlines() if not line.startswith("#")]
        assert not any("nats" in line or "wakeup" in line for line in samples)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name in ("a2a_handoff.notify.link", "a2a_handoff.notify.nats"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    monkeypatch.setitem(sys.modules, "nats.aio.msg", None)
    settings = Settings(nats="nats://127.0.0.1:4222", cards=tmp_path, store=f"sqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(ConfigurationError, match=r"a2a-handoff\[nats\]"):
        Application(settings)
