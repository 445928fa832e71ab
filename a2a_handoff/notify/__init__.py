"""What others are told: wake-ups to this process and to other brokers, and the log as a stream.

A wake-up says *look again* and may be lost; who waits reads the store with a cursor and loses nothing. What
goes over NATS (``link``, ``nats``, ``jetstream``) needs an extra, and is imported where it is asked for.
"""

from a2a_handoff.notify.local import LocalNotifier

__all__ = ["LocalNotifier"]
