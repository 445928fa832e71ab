"""Listings on SQLite: from a query's filters to SQL that reads no more rows than it must.

Rules: the index is chosen here and named in the SQL, so that no listing ever scans the table because
the planner guessed. An agent is sender or holder: two searches that share no row, put together.
Not here: threads and connections.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from a2a_handoff import ports
from a2a_handoff.core.events import State
from a2a_handoff.ports import HandoffPage, HandoffQuery
from a2a_handoff.stores.codec import decode_handoff
from a2a_handoff.stores.listing import WITHOUT_RESULT, Part, parts

#: Nobody holds a handoff that has ended. The states are named so that the index, which begins with
#: them, can be searched.
_HELD = "open = 1 AND state IN ({})".format(", ".join(f"'{state}'" for state in State if not state.terminal))
#: SQLite takes an index of some rows only for a statement that limits itself to them in the same words.
_ENDED = "state IN ({})".format(", ".join(f"'{state}'" for state in WITHOUT_RESULT))


@dataclass(frozen=True, slots=True)
class Search:
    """One index, and what a row must meet."""

    index: str
    where: str


def searches(query: HandoffQuery) -> list[Search]:
    """The searches whose rows together are the answer, without the cursor. No row is in two of them."""
    return [search for part in parts(query.states) for search in _of(part, query)]


def _of(part: Part, query: HandoffQuery) -> list[Search]:
    terms = ["tenant = :tenant"]
    if query.updated_after is not None:
        terms.append("updated_at >= :updated_after")
    if part.states:
        terms.append(f"state IN ({', '.join(f':{state}' for state in part.states)})")
    if part.among == "open":
        terms.append("open = 1")
    if part.among == "without result":
        terms.append(_ENDED)
    if query.sender:
        terms.append("sender = :sender")
    if query.holder:
        terms.append(f"holder = :holder AND {_HELD}")
    if query.face:
        terms.append("face = :face AND face <> ''")
    if query.context_id:
        terms.append("context_id = :context_id")
    if query.correlation_id:
        terms.append("correlation_id = :correlation_id")
    where, index = " AND ".join(terms), _index(part, query)
    if not query.agent:
        return [Search(index, where)]
    # By update alone would walk through the whole tenant to find the few rows of an agent.
    wide = index == "handoffs_by_update"
    found = [Search("handoffs_by_sender" if wide else index, f"{where} AND sender = :agent")]
    if part.among != "without result":
        held = f"{where} AND holder = :agent AND {_HELD} AND sender <> :agent"
        found.append(Search("handoffs_open" if wide or index == "handoffs_by_sender" else index, held))
    return found


def _index(part: Part, query: HandoffQuery) -> str:
    """The index with the fewest rows to look at."""
    if query.correlation_id:
        return "handoffs_by_chain"
    if query.context_id:
        return "handoffs_by_context"
    if part.among == "open" or query.holder:
        return "handoffs_open"
    if part.among == "without result":
        return "handoffs_without_result"
    if query.face:
        return "handoffs_by_face"
    return "handoffs_by_sender" if query.sender else "handoffs_by_update"


def page_statement(query: HandoffQuery) -> str:
    """Rows of (updated_at, id, snapshot), one more than the page holds."""
    cursor = " AND (updated_at, id) < (:updated_before, :id_before)" if query.before else ""
    order = "ORDER BY updated_at DESC, id DESC LIMIT :rows"
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT updated_at, id, snapshot FROM handoffs INDEXED BY {search.index}"  # noqa: S608 - every part is a constant of this module
        f" WHERE {search.where}{cursor} {order})"
        for search in searches(query)
    )
    return f"{parts} {order}"


def total_statement(query: HandoffQuery) -> str:
    """One row: how many there are, up to ``TOTAL_MAX``, whatever the cursor."""
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 FROM handoffs INDEXED BY {search.index}"  # noqa: S608 - every part is a constant of this module
        f" WHERE {search.where} LIMIT :total_max))"
        for search in searches(query)
    ]
    return f"SELECT min({' + '.join(counts)}, :total_max)"


def values(query: HandoffQuery) -> dict[str, object]:
    """The parameters of both statements."""
    updated_before, id_before = query.before or (None, None)
    named: dict[str, object] = {
        "tenant": query.tenant,
        "sender": query.sender,
        "agent": query.agent,
        "holder": query.holder,
        "face": query.face,
        "correlation_id": query.correlation_id,
        "context_id": query.context_id,
        "updated_after": query.updated_after,
        "updated_before": updated_before,
        "id_before": id_before,
        "rows": query.limit + 1,
        "total_max": ports.TOTAL_MAX,
    }
    return named | {state.value: state.value for state in query.states}


def list_page(connection: sqlite3.Connection, query: HandoffQuery) -> HandoffPage:
    """Read one page and the total in one snapshot of the database."""
    named = values(query)
    connection.execute("BEGIN")
    try:
        rows = connection.execute(page_statement(query), named).fetchall()
        (total,) = connection.execute(total_statement(query), named).fetchone()
    finally:
        connection.execute("COMMIT")
    page = rows[: query.limit]
    return HandoffPage(
        handoffs=tuple(decode_handoff(snapshot) for _, _, snapshot in page),
        next=(page[-1][0], page[-1][1]) if len(rows) > len(page) else None,
        total=total,
    )
