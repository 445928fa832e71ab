"""The table of webhooks on SQLite: read, keep how far one was told, remove.

Rules: what an edition was told is written to that edition only, so whoever goes on with an old one changes
nothing. Putting one in belongs to a commit (``batch``).
Not here: who is told what (``courier``).
"""

from __future__ import annotations

import sqlite3

from a2a_handoff.core.events import WorkKind
from a2a_handoff.ports import Webhook
from a2a_handoff.stores.codec import decode_webhook, encode_webhook

_LIST = "SELECT body FROM webhooks WHERE handoff_id = ? ORDER BY id"
_SAVE = "UPDATE webhooks SET body = ? WHERE handoff_id = ? AND id = ? AND edition = ?"
_DELETE = "DELETE FROM webhooks WHERE handoff_id = ? AND id = ? RETURNING edition"
_DELETE_WORK = "DELETE FROM work WHERE handoff_id = ? AND kind = ? AND attempt = 0 AND ref = ?"


def listed(connection: sqlite3.Connection, handoff_id: str) -> list[Webhook]:
    """The webhooks of a handoff, by id."""
    return [decode_webhook(body) for (body,) in connection.execute(_LIST, (handoff_id,)).fetchall()]


def save(connection: sqlite3.Connection, webhook: Webhook) -> bool:
    """Keep how far this edition was told. False if it is not there any more."""
    row = (encode_webhook(webhook), webhook.handoff_id, webhook.id, webhook.edition)
    return connection.execute(_SAVE, row).rowcount > 0


def delete(connection: sqlite3.Connection, handoff_id: str, webhook_id: str) -> bool:
    """Remove a webhook and its work. False if there was none."""
    gone = connection.execute(_DELETE, (handoff_id, webhook_id)).fetchall()
    for (edition,) in gone:
        connection.execute(_DELETE_WORK, (handoff_id, WorkKind.WEBHOOK.value, edition))
    return bool(gone)
