"""The process: one listening socket, uvicorn, signals, and an interpreter tuned for one busy loop.

Not here: what is served (``app``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import sys
from collections.abc import Generator
from functools import partial
from typing import Any

import uvicorn

from a2a_handoff.app import Application, ConfigurationError
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.telemetry import configure_logging, exported_logs
from a2a_handoff.transports.http import BoundedHttp
from a2a_handoff.transports.socket_protocol import BoundedSocket

#: uvloop accepts one connection of a listener in each turn of the loop. In a busy broker the last of many
#: callers would wait for seconds, so the one socket is listened to several times.
_ACCEPTED_AT_ONCE = 16
#: Seconds that the event loop computes at most before another thread may break in.
_TURN_S = 0.03


class _Server(uvicorn.Server):
    """uvicorn, told when to say that it is ready and when to let the open streams go."""

    def __init__(self, config: uvicorn.Config, application: Application, url: str) -> None:
        super().__init__(config)
        self._application = application
        self._url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop gracefully at the first signal, at once at the second; the exit code is ours.

        uvicorn's own raises the signal again when it is done, and the process would end by it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"a2a-handoff is ready at {self._url}", flush=True)  # noqa: T201 - the one line of serve

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.begin_stop()
        await super().shutdown(sockets)


def serve(settings: Settings) -> int:
    """Run until a signal. The exit code: 0 after a graceful stop, 1 if it could not start."""
    configure_logging(settings.log_level, settings.log_format)
    try:
        with exported_logs(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings))
    except (StoreUnavailable, HandoffError, ConfigurationError) as error:
        print(f"a2a-handoff: {error}", file=sys.stderr)  # noqa: T201 - what the operator sees
        return 1
    except KeyboardInterrupt:
        return 130


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - it is not there on every platform

    return uvloop.Loop


def protocols(settings: Settings) -> dict[str, Any]:
    """What uvicorn makes of each connection, as options of it.

    WebSockets do not compress: it would cost each of them 40 kB.
    """
    return {
        "http": partial(
            BoundedHttp,
            head_max=settings.max_head,
            arrival_s=settings.arrival,
            send_timeout_s=settings.send_timeout,
        ),
        "ws": partial(BoundedSocket, ping_s=settings.socket_ping),
        "ws_max_size": settings.max_body,
        "ws_per_message_deflate": False,
    }


def _tune_interpreter() -> None:
    """Let the event loop have the interpreter, which is what every handoff waits for.

    The other threads take their turn whenever the loop looks for input; if they could break in after the
    usual five milliseconds, the writer would do so for each statement. And a handoff makes hundreds of
    values but no cycle, so that looking for cycles every few requests is work for nothing.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _serve(settings: Settings) -> int:
    bound = _bind(settings)
    application = Application(settings)
    try:
        await application.start(url=settings.url(bound.getsockname()[1]))
        _tune_interpreter()
        config = uvicorn.Config(
            application,
            **protocols(settings),
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(settings.grace / 2)),
            backlog=2048,
        )
        listeners = [bound, *(bound.dup() for _ in range(_ACCEPTED_AT_ONCE - 1))]
        await _Server(config, application, application.url).serve(sockets=listeners)
    finally:
        await application.stop()
        bound.close()
    return 0


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Only a socket that says TCP gets TCP_NODELAY from asyncio; without, each answer takes 40 ms more.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        why = (
            f"port {settings.port} is in use; stop the other server or set A2A_HANDOFF_PORT"
            if error.errno == errno.EADDRINUSE
            else f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        )
        raise ConfigurationError(why) from error
    bound.setblocking(False)
    return bound


__all__ = ["protocols", "serve"]
