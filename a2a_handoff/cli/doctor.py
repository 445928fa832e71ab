"""``doctor``: is everything there that the broker of these settings needs?

Duty: look at settings, store, clock, cards, broker, agents, NATS and collector, each by itself and within
seconds, and say of each what is wrong and what to do.
Rules: it looks and changes nothing; the store of a running broker is left to it.
Not here: what the parts do, whether a store holds together (``database``).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from a2a_handoff.cli.outcome import Failed
from a2a_handoff.cli.place import Place
from a2a_handoff.cli.remote import Broker, is_direct
from a2a_handoff.config import Settings, SettingsError, read
from a2a_handoff.config.settings import hide_password
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.notify.chosen import nats_link
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.security.urls import OutboundPolicy
from a2a_handoff.stores.sqlite_file import DatabaseFile
from a2a_handoff.wire.cards import read_card

ANSWER_S = 3.0
ROOM_MIN = 1 << 30
#: Share of ``work_lease`` by which clocks may differ: a claim is renewed after a third of it.
_APART_MAX = 1 / 3
#: Agents that are looked at, at a time.
TOGETHER = 16

Verdict = Literal["ok", "warning", "failed", "not used"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to know or do about it."""

    part: str
    verdict: Verdict
    words: str


async def examine(place: Place, environ: Mapping[str, str], config_file: Path | None) -> list[Finding]:
    """Look at everything. Without an address in ``place`` the broker is where the settings let it listen."""
    try:
        settings = read(environ=environ, config_file=config_file)
    except SettingsError as error:
        return [Finding("settings", "failed", line) for line in error.lines]
    with Broker(replace(place, url=place.url or settings.url())) as broker:
        return await _look(broker, settings, environ)


async def _look(broker: Broker, settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    parts: tuple[tuple[str, Callable[[], Awaitable[Finding]]], ...] = (
        ("store", lambda: _store(settings.store)),
        ("clock", lambda: _clock(settings)),
        ("cards", lambda: _cards(settings.cards)),
        ("NATS", lambda: _nats(settings)),
        ("collector", lambda: _collector(environ)),
        ("Jaeger", lambda: _jaeger(settings.jaeger_url)),
        ("broker", lambda: _broker(broker)),
    )
    found = [Finding("settings", "ok", "all can be used")]
    for part, look in parts:
        try:
            found.append(await look())
        except Exception as error:  # noqa: BLE001 - the next part is looked at whatever became of this one
            found.append(Finding(part, "failed", str(error) or type(error).__name__))
    if found[-1].verdict == "ok":
        found += await _agents(broker, settings)
    return found


def shown(found: list[Finding], *, as_json: bool) -> str:
    """For people, or for programs."""
    if as_json:
        return json.dumps([asdict(one) for one in found], indent=2)
    wide = max(len(one.part) for one in found)
    return "\n".join(f"{one.part:<{wide}}  {one.verdict:<8}  {one.words}" for one in found)


# --- the store -----------------------------------------------------------------------------------


async def _store(url: str) -> Finding:
    if url.startswith("sqlite:///"):
        return await asyncio.to_thread(_file, Path(url.removeprefix("sqlite:///")))
    from a2a_handoff.stores.postgres_schema import behind  # noqa: PLC0415 - its driver is an extra
    from a2a_handoff.stores.postgres_server import Server  # noqa: PLC0415 - its driver is an extra

    server = Server(url)
    session = await server.connect()
    try:
        return _schema(server.name, await behind(session, server.name))
    finally:
        await session.close()


def _file(path: Path) -> Finding:
    file = DatabaseFile(path)
    folder = next(above for above in file.path.parents if above.exists())
    if not os.access(folder, os.W_OK):
        return Finding("store", "failed", f"{folder} may not be written: check its owner and permissions")
    room = shutil.disk_usage(folder).free
    if room < ROOM_MIN:
        return Finding("store", "warning", f"{folder} has {room / ROOM_MIN:.2f} GiB left: free some")
    if not file.path.exists():
        return Finding("store", "ok", f"{file.path} will be made by serve")
    try:
        return _schema(str(file.path), file.behind())
    except sqlite3.Error as error:
        return Finding("store", "failed", str(file.fault(error)))


def _schema(name: str, steps: int) -> Finding:
    if steps > 0:
        return Finding("store", "warning", f"{name} lacks {steps} steps of the schema: serve will make them")
    if steps < 0:
        return Finding("store", "ok", f"{name} has a newer schema, which this version may use")
    return Finding("store", "ok", f"{name} has the schema of this version")


async def _clock(settings: Settings) -> Finding:
    """Brokers on one database read times that others wrote: the database knows what time it is for all."""
    if settings.store.startswith("sqlite:///"):
        return Finding("clock", "not used", "one broker has one clock")
    from a2a_handoff.stores import postgres_replicas  # noqa: PLC0415 - its driver is an extra
    from a2a_handoff.stores.postgres_server import Server  # noqa: PLC0415 - its driver is an extra

    server = Server(settings.store)
    try:
        session = await server.connect()
    except StoreUnavailable:
        return Finding("clock", "not used", "the store says nothing")
    try:
        asked = time.time()
        there = await postgres_replicas.now(session)
        answered = time.time()
    finally:
        await session.close()
    apart = max(asked - there, there - answered, 0.0)
    words = f"this machine and {server.name} are {apart:.1f} s apart"
    if apart > settings.work_lease * _APART_MAX:
        return Finding("clock", "warning", f"{words}: set both by NTP, or brokers take work from each other")
    return Finding("clock", "ok", words)


# --- what stands around --------------------------------------------------------------------------


async def _cards(folder: Path) -> Finding:
    return await asyncio.to_thread(_card_files, folder)


def _card_files(folder: Path) -> Finding:
    files = sorted(folder.glob("*.json"))
    if not files:
        return Finding("cards", "warning", f"{folder} has no cards: agents have to register themselves")
    faults: list[str] = []
    for file in files:
        try:
            read_card(file.read_bytes(), path=file.name)
        except (HandoffError, OSError) as error:
            faults.append(f"{file.name} ({error})")
    if faults:
        return Finding("cards", "failed", f"{', '.join(faults)}: see a2a-handoff agents check")
    return Finding("cards", "ok", f"{len(files)} in {folder}")


async def _nats(settings: Settings) -> Finding:
    link = nats_link(settings)
    if link is None:
        return Finding("NATS", "not used", "nats is not set: one broker needs none")
    up = asyncio.Event()
    link.on_change = up.set
    link.start()
    try:
        await asyncio.wait_for(up.wait(), ANSWER_S)
    except TimeoutError:
        return Finding("NATS", "failed", f"no server lets us in: {hide_password(settings.nats)}")
    finally:
        await link.close()
    return Finding("NATS", "ok", "connected")


async def _collector(environ: Mapping[str, str]) -> Finding:
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    url = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (base and f"{base}/v1/traces")
    if not url:
        return Finding("collector", "not used", "OTEL_EXPORTER_OTLP_ENDPOINT is not set: spans go nowhere")
    # A request without spans is a good one (OTLP, "Full Success").
    status = await _status(url, content=b"", headers={"Content-Type": "application/x-protobuf"})
    if status != 200:
        return Finding("collector", "failed", f"{url} answers {status}: spans would be dropped")
    return Finding("collector", "ok", f"{url} takes spans")


async def _jaeger(url: str) -> Finding:
    if not url:
        return Finding("Jaeger", "not used", "jaeger_url is not set: answers have no link to it")
    status = await _status(url)
    if status != 200:
        return Finding("Jaeger", "warning", f"{url} answers {status}: links in answers lead nowhere")
    return Finding("Jaeger", "ok", url)


async def _status(url: str, **more: Any) -> int | str:
    async with httpx.AsyncClient(timeout=ANSWER_S, trust_env=not is_direct(url)) as client:
        try:
            answer = await (client.post(url, **more) if more else client.get(url))
        except httpx.HTTPError as error:
            return f"nothing ({type(error).__name__})"
    return answer.status_code


# --- the broker and its agents -------------------------------------------------------------------


async def _broker(broker: Broker) -> Finding:
    status = await _status(f"{broker.url}/readyz")
    if isinstance(status, str):
        return Finding("broker", "warning", f"{broker.url} answers {status}: start it, or name it with --url")
    if status != 200:
        return Finding("broker", "failed", f"{broker.url} runs and is not ready: its log says why")
    return Finding("broker", "ok", f"{broker.url} is ready")


async def _agents(broker: Broker, settings: Settings) -> list[Finding]:
    try:
        agents: list[Any] = json.loads(await asyncio.to_thread(broker.get, "/api/agents"))["agents"]
    except Failed as failed:
        return [Finding("agents", "failed", "; ".join(failed.lines))]
    listening = {one["agent_id"]: one["interfaces"][0]["url"] for one in agents if one["interfaces"]}
    policy = OutboundPolicy(allow_private=settings.private_addresses, lookup_s=ANSWER_S)
    gate = asyncio.Semaphore(TOGETHER)

    async def reach(agent_id: str, url: str) -> Finding | None:
        async with gate:
            fault = await _connection_fault(url, policy)
        return Finding("agents", "failed", f"{agent_id}: {url} {fault}") if fault else None

    lost = [one for one in await asyncio.gather(*(reach(*item) for item in listening.items())) if one]
    words = (
        f"{len(listening) - len(lost)} of {len(listening)} that listen can be connected to, "
        f"{len(agents) - len(listening)} fetch their work"
    )
    return [*lost, Finding("agents", "failed" if lost else "ok", words)]


async def _connection_fault(url: str, policy: OutboundPolicy) -> str:
    """Why the broker gets no connection at an address; empty if it does."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        await policy.vet(f"http://{parts.netloc}/")
    except HandoffError:
        return (
            "may not be called by the broker of these settings, or has an unknown name; "
            "addresses in private networks need A2A_HANDOFF_ALLOW_PRIVATE_ADDRESSES=true"
        )
    try:
        opening = asyncio.open_connection(parts.hostname, port)
        _, writer = await asyncio.wait_for(opening, ANSWER_S)
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"cannot be connected to: {error.strerror or error}"
    writer.close()
    return ""
