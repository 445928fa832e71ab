"""NATS as the settings want it: one connection, wake-ups over it, and the stream of events if asked for.

Rules: the client is an extra and imported here alone, when it is needed.
Not here: what goes over the connection (``nats``, ``jetstream``).
"""

# ruff: noqa: PLC0415 - see the rules above

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a_handoff.config import ConfigurationError, Settings

if TYPE_CHECKING:
    from a2a_handoff.notify.jetstream import NatsStream
    from a2a_handoff.notify.link import NatsLink
    from a2a_handoff.notify.nats import NatsNotifier


def nats_link(settings: Settings) -> NatsLink | None:
    """A connection to the servers of the settings, still to be started; ``None`` if there are none.

    Raises ``ConfigurationError`` if the client is not installed.
    """
    if not settings.nats_servers:
        return None
    try:
        from a2a_handoff.notify.link import Access, NatsLink
    except ImportError:
        raise ConfigurationError("nats needs the extra nats: pip install 'a2a-handoff[nats]'") from None
    access = Access(
        servers=settings.nats_servers,
        creds=settings.nats_creds,
        ca=settings.nats_ca,
        cert=settings.nats_cert,
        key=settings.nats_key,
    )
    return NatsLink(access, name="a2a-handoff")


def nats_notifier(settings: Settings, link: NatsLink) -> NatsNotifier:
    """The way to wake other brokers."""
    from a2a_handoff.notify.nats import NatsNotifier

    return NatsNotifier(link, prefix=settings.nats_prefix)


def nats_stream(settings: Settings, link: NatsLink) -> NatsStream | None:
    """The way to those who follow the log, if it is asked for."""
    if not settings.nats_stream:
        return None
    from a2a_handoff.notify.jetstream import NatsStream, StreamPlan

    plan = StreamPlan(
        name=settings.nats_stream,
        prefix=settings.nats_prefix,
        age_s=settings.nats_stream_age,
        size=settings.nats_stream_size,
        replicas=settings.nats_stream_replicas,
    )
    return NatsStream(link, plan)
