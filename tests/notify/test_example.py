"""The consumer of the how-to page does what the page says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import nats

from tests.notify.follower import events
from tests.support.nats import nats_server
from tests.support.running import Broker, broker
from tests.support.wire import eventually

PAGE = Path(__file__).parents[2] / "docs/how-to/follow-events-with-nats.md"


def _hand_off(b: Broker) -> list[str]:
    """The ids of the events of a handoff that nobody can do."""
    body = {"task": "fly", "source_agent": "shop", "requirements": {"capabilities": ["canFly"]}}
    handoff_id = b.http.post("/api/handoffs", json=body).json()["handoff_id"]
    return [event["id"] for event in b.http.get(f"/api/handoffs/{handoff_id}/events").json()["events"]]


def _lines(output: IO[str], count: int) -> list[str]:
    return [output.readline().split(" ")[0] for _ in range(count)]


def test_the_consumer_of_the_page_reads_on_where_it_was(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "follow.py").write_text(program)
    (tmp_path / "nats").mkdir()
    with (
        nats_server(tmp_path / "nats") as server,
        broker(tmp_path, nats=server.url, nats_stream="handoffs") as b,
    ):
        made = [_hand_off(b), _hand_off(b)]
        for expected in ([*made[0], *made[1]], None):
            wanted = expected if expected is not None else _hand_off(b)
            events(
                server.url, stream="handoffs", least=len(wanted)
            )  # the broker makes the stream when it can
            with subprocess.Popen(
                (sys.executable, str(tmp_path / "follow.py"), server.url), stdout=subprocess.PIPE, text=True
            ) as consumer:
                assert consumer.stdout is not None
                assert _lines(consumer.stdout, len(wanted)) == wanted
                eventually(lambda: not asyncio.run(_unacknowledged(server.url)))
                consumer.kill()


async def _unacknowledged(url: str) -> int:
    client = await nats.connect(url)
    info = await client.jetstream().consumer_info("handoffs", "printer")
    await client.close()
    return info.num_ack_pending or 0


def test_the_rights_on_the_page_are_enough_for_the_broker(tmp_path: Path) -> None:
    (rights,) = re.findall(r"```conf\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    reader = '{ user: "reader", password: "r" }'
    config = rights.replace('"$BROKER_PASSWORD"', '"b"').replace("users: [", f"users: [ {reader}, ")
    (tmp_path / "nats").mkdir()
    with nats_server(tmp_path / "nats", config) as server:
        mine, theirs = (server.url.replace("//", f"//{user}@") for user in ("broker:b", "reader:r"))
        with broker(tmp_path, nats=mine, nats_stream="handoffs") as b:
            made = _hand_off(b)
            assert [heard.id for heard in events(theirs, stream="handoffs", least=len(made))] == made
            eventually(lambda: b.http.get("/readyz").text == "ready\n")
