"""Push configurations as clients write and read them, and what their webhooks are told.

Duty: from a checked configuration to a ``Webhook`` and back to JSON; the headers and the bodies of
notifications.
Rules: a webhook is told in the generation in which it was set: in 1.0 each event as a stream would have it,
before that the whole task as it stands after the event. A notification has the same id whenever it is sent.
Sources: A2A 1.0 sections 3.1.7 to 3.1.10 and 4.3; the 0.3 specification sections 7.5 to 7.8; ``a2a.json`` of
0.1.
Not here: reading params (``requests``), the shapes of each generation (``shapes``), sending (``courier``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Webhook
from a2a_handoff.wire import notices
from a2a_handoff.wire.projection import TaskFold, stream_events
from a2a_handoff.wire.shapes import pack, push_out
from a2a_handoff.wire.tasks import StreamWriter, task_json

#: Names a notification, so that a receiver can tell one that it had before.
ID_HEADER = "X-A2A-Notification-Id"
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - the name of a header


class _Authentication(msgspec.Struct, frozen=True):
    scheme: str | None = None
    credentials: str | None = None


class PushConfig(msgspec.Struct, frozen=True):
    """What of a 1.0 ``TaskPushNotificationConfig`` means something here."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: _Authentication | None = None


_config = msgspec.json.Decoder(PushConfig)


def webhook_of(config: bytes, generation: Generation, *, edition: str, created_at: float) -> Webhook:
    """The webhook of a checked 1.0 configuration. Its task is not named yet.

    In 1.0 one without an id gets its edition for one.
    """
    wanted = _config.decode(config)
    authentication = wanted.authentication or _Authentication()
    return Webhook(
        handoff_id="",
        id=wanted.id or (edition if generation is Generation.V1_0 else ""),
        edition=edition,
        task_id="",
        generation=generation,
        url=wanted.url,
        token=wanted.token or "",
        scheme=authentication.scheme or "",
        credentials=authentication.credentials or "",
        created_at=created_at,
    )


# --- configurations ------------------------------------------------------------------------------


def push_json(webhook: Webhook, generation: Generation) -> bytes:
    """The configuration as its owner set it. It is shown to nobody else, so its secrets stand in it."""
    config: dict[str, Any] = {"taskId": webhook.task_id, "id": webhook.id, "url": webhook.url}
    if webhook.token:
        config["token"] = webhook.token
    secrets = {"scheme": webhook.scheme, "credentials": webhook.credentials}
    if authentication := {name: value for name, value in secrets.items() if value}:
        config["authentication"] = authentication
    return push_out(pack(config), generation)


def push_list_json(webhooks: Iterable[Webhook], generation: Generation) -> bytes:
    """All configurations of a task: there are few, so they are one page."""
    configs = [Raw(push_json(webhook, generation)) for webhook in webhooks]
    return pack({"configs": configs, "nextPageToken": ""} if generation is Generation.V1_0 else configs)


def deleted_json(generation: Generation) -> bytes:
    """The result of a deletion: an empty object in 1.0, null in 0.3."""
    return b"{}" if generation is Generation.V1_0 else b"null"


# --- notifications -------------------------------------------------------------------------------


def notification_headers(webhook: Webhook, notification_id: str) -> tuple[tuple[str, str], ...]:
    """The headers of a notification. A scheme without credentials gives no ``Authorization``."""
    media_type = "application/a2a+json" if webhook.generation is Generation.V1_0 else "application/json"
    headers = [("Content-Type", media_type), (ID_HEADER, notification_id)]
    if webhook.token:
        headers.append((TOKEN_HEADER, webhook.token))
    if webhook.scheme and webhook.credentials:
        headers.append(("Authorization", f"{webhook.scheme} {webhook.credentials}"))
    return tuple(headers)


class NotificationWriter:
    """Writes what a webhook is told of a task. It must see every event of the task, from the first on.

    ``task_id`` is the name of the task that the webhook's client knows.
    """

    def __init__(self, generation: Generation, task_id: str) -> None:
        self._generation = generation
        self._task_id = task_id
        self._context_id: str | None = None
        self._language = notices.ENGLISH
        self._stream = StreamWriter(generation)
        self._task = TaskFold()

    def write(self, before: Handoff | None, event: Event, after: Handoff) -> list[bytes]:
        """The notifications of one event, in their order; often there are none."""
        if self._context_id is None:
            self._context_id = after.context_id
            if isinstance(event, ev.HandoffRequested):
                self._language = notices.language_of(event.package.context.user_preferences)
        told = stream_events(before, event, after, language=self._language)
        if self._generation is Generation.V1_0:
            named = [replace(one, task_id=self._task_id, context_id=self._context_id) for one in told]
            return [body for one in named for body in self._stream.write(one)]
        self._task.take(event, after)
        if not told:
            return []
        return [task_json(replace(self._task.view(), id=self._task_id), self._generation)]
