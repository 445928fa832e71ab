"""The table of webhooks on PostgreSQL: read, keep how far one was told, remove.

Rules: as on SQLite (``sqlite_webhooks``): what an edition was told is written to that edition only.
Not here: who is told what (``courier``).
"""

from __future__ import annotations

from a2a_handoff.core.events import WorkKind
from a2a_handoff.ports import Webhook
from a2a_handoff.stores.codec import decode_webhook, encode_webhook
from a2a_handoff.stores.postgres_server import Session

_LIST = "SELECT body FROM webhooks WHERE handoff_id = $1 ORDER BY id"
_SAVE = "UPDATE webhooks SET body = $1 WHERE handoff_id = $2 AND id = $3 AND edition = $4"
_DELETE = """
WITH gone AS (DELETE FROM webhooks WHERE handoff_id = $1 AND id = $2 RETURNING edition),
     done AS (DELETE FROM work USING gone
              WHERE handoff_id = $1 AND kind = $3 AND attempt = 0 AND ref = edition)
SELECT FROM gone
"""


async def listed(session: Session, handoff_id: str) -> list[Webhook]:
    """The webhooks of a handoff, by id."""
    return [decode_webhook(body) for (body,) in await session.rows(_LIST, handoff_id)]


async def save(session: Session, webhook: Webhook) -> bool:
    """Keep how far this edition was told. False if it is not there any more."""
    row = (encode_webhook(webhook), webhook.handoff_id, webhook.id, webhook.edition)
    return await session.count(_SAVE, *row) > 0


async def delete(session: Session, handoff_id: str, webhook_id: str) -> bool:
    """Remove a webhook and its work. False if there was none."""
    return bool(await session.rows(_DELETE, handoff_id, webhook_id, WorkKind.WEBHOOK.value))
