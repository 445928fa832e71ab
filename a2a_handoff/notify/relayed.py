"""Wake-ups between brokers over whatever carries them.

Duty: wake here, and have the others told by ``ports.Hints``, such as their common database.
Rules: a hint may be lost on its way, so ``look_s`` has everybody look from time to time without one.
Not here: carrying hints (``stores.postgres_hints``), waiting (``local``).
"""

from __future__ import annotations

from a2a_handoff.notify.local import LocalNotifier
from a2a_handoff.ports import Hints

LOOK_S = 15.0


class RelayedNotifier(LocalNotifier):
    """Wake-ups in this process, and in those that ``hints`` reach."""

    def __init__(self, hints: Hints) -> None:
        super().__init__(look_s=LOOK_S)
        self._hints = hints

    def start(self) -> None:
        """Begin to hear. Waits for nothing."""
        self._hints.start(self.wake)

    async def close(self) -> None:
        """Tell nothing more."""
        await self._hints.close()

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``, here and in every other broker."""
        self.wake(topic)
        self._hints.send(topic)

    def tell(self, topic: str) -> None:
        """Wake everybody in the other brokers who listens to ``topic``."""
        self._hints.send(topic)
