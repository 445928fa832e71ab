"""Wake-up hints: *look again*. Within one process, or between all brokers on one store.

A hint may be lost; who waits reads the store with a cursor and loses nothing. ``nats`` and ``link`` need an
extra, and are imported where they are asked for.
"""

from a2a_handoff.notify.local import LocalNotifier

__all__ = ["LocalNotifier"]
