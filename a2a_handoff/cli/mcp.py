"""``mcp``: the tools on standard input and output, for clients that start their servers.

Duty: register the agent, keep it present, serve the tools until the client goes or a signal comes.
Rules: standard output carries the protocol and nothing else; notes go to standard error. A broker that is
away is no reason to end: the tools say so, and the agent is registered when the broker is there. Nothing is
kept here, so that a process that is killed loses nothing.
Sources: MCP 2025-06-18, section Transports, stdio.
Not here: the tools (``transports.mcp``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import httpx

from a2a_handoff.cli.outcome import FAILED, Failed
from a2a_handoff.cli.place import Place
from a2a_handoff.cli.remote import CONNECT_S, explained, is_direct
from a2a_handoff.transports.mcp.calls import Caller, Calls, Refused, segment
from a2a_handoff.transports.mcp.surface import INSTALL
from a2a_handoff.transports.mcp.tools import Toolbox

#: An agent is present for 20 s after its last call; its lease is far longer.
_BEAT_S = 5.0
_AGAIN_S = 1.0
_BYE_S = 1.0
_END_S = 3.0
_LINES_MAX = 64
_READ = 65_536


def serve(place: Place, caller: Caller, *, anew: bool) -> int:
    """Serve until the client closes standard input, or until SIGTERM or SIGINT; the exit code is 0.

    ``anew``: register the agent also if the broker knows it. Raises ``Failed``.
    """
    try:
        from a2a_handoff.transports.mcp import server  # noqa: PLC0415 - an extra
    except ImportError:
        raise Failed(f"mcp needs the extra mcp: {INSTALL}", code=FAILED) from None
    url, direct = place.url.rstrip("/"), is_direct(place.url)
    caller = replace(caller, headers=place.headers())
    return asyncio.run(_serve(url, caller, server.make_server, direct=direct, anew=anew))


async def _serve(url: str, caller: Caller, make_server: Any, *, direct: bool, anew: bool) -> int:
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an extra

    timeout = httpx.Timeout(None, connect=CONNECT_S)
    async with httpx.AsyncClient(base_url=url, trust_env=not direct, timeout=timeout) as http:
        calls = Calls(http, explain=partial(explained, url), patient=True)

        def caller_of(_: object) -> Caller:
            return caller

        server = make_server(Toolbox(calls), caller_of)
        stopped = _signalled()
        options = server.create_initialization_options()
        lines = _Lines(sys.stdin.fileno())
        # A client that is gone may have closed our output, too.
        with contextlib.suppress(BrokenPipeError):
            async with stdio_server(stdin=cast("Any", lines)) as (read, write):
                tasks: list[asyncio.Task[Any]] = [
                    asyncio.create_task(server.run(read, write, options)),
                    asyncio.create_task(stopped.wait()),
                    asyncio.create_task(_stay_present(calls, caller, anew=anew)),
                ]
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                lines.close()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await _take_leave(calls, caller)
    return 0


def _signalled() -> asyncio.Event:
    """Set by SIGTERM and SIGINT. If the end does not come, since the client does not read, it is forced."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        loop.call_later(_END_S, os._exit, 0)

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows ends processes in other ways
            loop.add_signal_handler(number, stop)
    return stopped


async def _stay_present(calls: Calls, caller: Caller, *, anew: bool) -> None:
    """Register the agent, then give signs of life."""
    away = False
    while True:
        try:
            if anew:
                await calls.register(caller)
                anew = False
            else:
                await calls.present(caller, caller.agent_id)
            if away:
                _note("the broker is there again")
            away = False
        except Refused as refused:
            if not away:
                _note(str(refused))
            away = True
        await asyncio.sleep(_AGAIN_S if away else _BEAT_S)


async def _take_leave(calls: Calls, caller: Caller) -> None:
    """Say that nobody is here any more; what the agent was offered and what it holds waits for it."""
    path = f"/api/agents/{segment(caller.agent_id)}/heartbeat"
    with contextlib.suppress(Refused, TimeoutError):
        async with asyncio.timeout(_BYE_S):
            await calls.post(caller, path, {"status": "offline"}, tries=1)


def _note(text: str) -> None:
    sys.stderr.write(f"a2a-handoff mcp: {text}\n")
    sys.stderr.flush()


class _Lines:
    """The lines of a file descriptor, for ``async for``.

    Read in a thread that nobody waits for: one that waits for a client cannot be told to stop.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(_LINES_MAX)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def close(self) -> None:
        """No more lines."""
        while not self._lines.empty():
            self._lines.get_nowait()
        self._lines.put_nowait(None)

    def _read(self) -> None:
        rest = bytearray()
        with contextlib.suppress(OSError, RuntimeError):  # it is closed, or the loop is
            while read := os.read(self._descriptor, _READ):
                *whole, last = read.split(b"\n")
                for line in whole:
                    self._put(bytes(rest + line))
                    rest.clear()
                rest += last
            self._put(None)

    def _put(self, line: bytes | None) -> None:
        text = None if line is None else line.decode("utf-8", "replace")
        asyncio.run_coroutine_threadsafe(self._lines.put(text), self._loop).result()
