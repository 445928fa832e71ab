"""Listings on PostgreSQL: from a query's filters to SQL that reads no more rows than it must.

Rules: whatever narrows a listing has an index that also gives its order, so no plan sorts much or walks
through a tenant to find a few rows. An agent is sender or holder: two searches that share no row, put
together. Page and total are one statement, which sees one moment.
"""

from __future__ import annotations

from a2a_handoff import ports
from a2a_handoff.ports import HandoffPage, HandoffQuery
from a2a_handoff.stores.codec import decode_handoff
from a2a_handoff.stores.listing import Part, parts
from a2a_handoff.stores.postgres_server import Session


class _Values(list[object]):
    """The values of a statement."""

    def put(self, value: object) -> str:
        """The place of a value in the statement."""
        self.append(value)
        return f"${len(self)}"


def _searches(query: HandoffQuery, values: _Values) -> list[str]:
    """The conditions whose rows together are the answer, without the cursor. No row meets two of them."""
    return [where for part in parts(query.states) for where in _of(part, query, values)]


def _of(part: Part, query: HandoffQuery, values: _Values) -> list[str]:
    terms = [f"tenant = {values.put(query.tenant)}"]
    if query.updated_after is not None:
        terms.append(f"updated_at >= {values.put(query.updated_after)}::float8")
    if part.among == "without result":
        # Named, so that the planner knows that it is in the index of those, and how many there are.
        terms.append(f"state = '{part.states[0]}'")
    elif part.states:
        terms.append(f"state = ANY ({values.put([state.value for state in part.states])}::text[])")
    if part.among == "open":
        terms.append("open")
    if query.sender:
        terms.append(f"sender = {values.put(query.sender)}")
    if query.holder:
        # Nobody holds a handoff that has ended.
        terms.append(f"holder = {values.put(query.holder)} AND open")
    if query.face:
        terms.append(f"face = {values.put(query.face)} AND face <> ''")
    if query.context_id:
        terms.append(f"context_id = {values.put(query.context_id)}")
    if query.correlation_id:
        terms.append(f"correlation_id = {values.put(query.correlation_id)}")
    where = " AND ".join(terms)
    if not query.agent:
        return [where]
    agent = values.put(query.agent)
    held = f"{where} AND holder = {agent} AND open AND sender <> {agent}"
    return [f"{where} AND sender = {agent}", *([] if part.among == "without result" else [held])]


def page_statement(query: HandoffQuery) -> tuple[str, list[object]]:
    """Rows of (total, updated_at, id, snapshot), one more than the page holds; an empty page has one."""
    values = _Values()
    found = _searches(query, values)
    cursor = ""
    if query.before is not None:
        updated_at, handoff_id = query.before
        cursor = f" AND (updated_at, id) < ({values.put(updated_at)}::float8, {values.put(handoff_id)}::text)"
    order = f"ORDER BY updated_at DESC, id DESC LIMIT {values.put(query.limit + 1)}::int"
    parts = " UNION ALL ".join(
        f"(SELECT updated_at, id, snapshot FROM handoffs WHERE {where}{cursor} {order})"  # noqa: S608 - values stand apart
        for where in found
    )
    most = f"{values.put(ports.TOTAL_MAX)}::int"
    total = " + ".join(
        f"(SELECT count(*) FROM (SELECT FROM handoffs WHERE {where} LIMIT {most}) AS counted)"  # noqa: S608 - values stand apart
        for where in found
    )
    statement = (
        f"SELECT whole.total, page.* FROM (SELECT least({total}, {most}) AS total) AS whole"  # noqa: S608 - values stand apart
        f" LEFT JOIN (SELECT * FROM ({parts}) AS parts {order}) AS page ON true"
        " ORDER BY page.updated_at DESC, page.id DESC"
    )
    return statement, values


async def list_page(session: Session, query: HandoffQuery) -> HandoffPage:
    """Read one page and the total."""
    statement, values = page_statement(query)
    rows = await session.rows(statement, *values)
    total = rows[0][0]
    found = [row[1:] for row in rows if row[2] is not None]
    page = found[: query.limit]
    return HandoffPage(
        handoffs=tuple(decode_handoff(snapshot) for _, _, snapshot in page),
        next=(page[-1][0], page[-1][1]) if len(found) > len(page) else None,
        total=total,
    )
