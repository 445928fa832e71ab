"""The machine's clock is set back by minutes: nobody waits until its old time has come again."""

from __future__ import annotations

import asyncio
import json

import pytest

from a2a_handoff.transports.calls import Origin
from a2a_handoff.wire import native
from tests.simulation.agents import Weather
from tests.simulation.time import VirtualLoop
from tests.simulation.world import ANYBODY, World

#: The offer lies in the inbox for 30 s, is announced again once, and goes to the next agent.
OFFERED_S = 60.0


@pytest.mark.parametrize("set_back_s", [0.0, 15.0, 300.0, 900.0])
def test_an_offer_that_nobody_takes_goes_on_within_twice_its_time(set_back_s: float) -> None:
    async def scene() -> None:
        world = World(1, loop)
        world.deadly = 0.0
        world.weather = Weather.fair()
        serving = loop.create_task(world.serve())
        await world.ready.wait()
        body = {"source_agent": "caller", "task": "t", "targetAgent": "puller", "fallback": ["polite"]}
        wanted = native.decode(native.HandoffIn, json.dumps(body).encode())
        origin = Origin(surface="rest", method="POST", route="/api/handoffs")
        offered = (await world.calls.create(ANYBODY, wanted, origin)).handoff
        assert offered.holder == "puller"
        await asyncio.sleep(5.0)
        world.clock.skew -= set_back_s
        since = loop.time()
        while world.data.handoffs[offered.id].holder == "puller":
            assert loop.time() < since + 2 * OFFERED_S
            await asyncio.sleep(1.0)
        assert [attempt.agent_id for attempt in world.data.handoffs[offered.id].attempts] == [
            "puller",
            "polite",
        ]
        times = [one.event.at for one in world.data.log]
        assert times == sorted(times)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await world.process.kill()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()
