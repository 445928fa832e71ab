"""Every way into the broker behind one small interface, so that one test body serves them all.

Not here: what each surface must do (``requirements``).
"""

from __future__ import annotations

from tests.interaction.dialects import Dialect, Dialect01, Dialect03, Dialect03Http
from tests.interaction.natives import Native, Socketed, Tooled
from tests.interaction.rpcs import Grpc, Grpc03
from tests.interaction.seen import Surface
from tests.interaction.wires import Face, JsonRpc, PlainHttp, Rest
from tests.support.running import Broker


def surfaces(broker: Broker) -> dict[str, Surface]:
    """Every surface of a broker by name, in the order of ``requirements.SURFACES``."""
    made: list[Surface] = [
        JsonRpc(broker, "jsonrpc-1.0", Dialect()),
        JsonRpc(broker, "jsonrpc-0.3", Dialect03()),
        Rest(broker, "http-1.0", Dialect()),
        Rest(broker, "http-0.3", Dialect03Http(), "/v1"),
        Grpc(broker, "grpc-1.0", Dialect()),
        Grpc03(broker, "grpc-0.3", Dialect03Http()),
        JsonRpc(broker, "jsonrpc-first", Dialect01()),
        PlainHttp(broker, "http-first-bare", Dialect01(), bare=True),
        PlainHttp(broker, "http-first-envelope", Dialect01(), bare=False),
        Face(broker, "face", Dialect()),
        Native(broker, "native"),
        Socketed(broker, "websocket"),
        Tooled(broker, "mcp"),
    ]
    return {surface.name: surface for surface in made}
