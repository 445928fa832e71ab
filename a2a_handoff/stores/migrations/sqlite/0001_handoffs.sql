-- The log is the truth; every other table can be told from it, or is work in hand.
-- Texts are kept as they came, times are epoch seconds.

PRAGMA application_id = 0x6132616F;  -- "a2ao"

CREATE TABLE events (
    position   INTEGER PRIMARY KEY,  -- over all handoffs, in commit order
    handoff_id TEXT    NOT NULL,
    seq        INTEGER NOT NULL,     -- from 1 within the handoff
    type       TEXT    NOT NULL,
    body       BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_handoff ON events (handoff_id, seq);

-- A row table: snapshots are too wide for the inner pages of a table without row ids.
CREATE TABLE handoffs (
    number         INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    tenant         TEXT    NOT NULL,
    sender         TEXT    NOT NULL,
    correlation_id TEXT    NOT NULL,
    context_id     TEXT    NOT NULL,
    created_at     REAL    NOT NULL,
    updated_at     REAL    NOT NULL,
    version        INTEGER NOT NULL,  -- how many events the log holds
    state          TEXT    NOT NULL,
    open           INTEGER NOT NULL,  -- 1 until the state is terminal
    holder         TEXT    NOT NULL,  -- empty unless open and offered or held
    snapshot       BLOB    NOT NULL
) STRICT;

-- The state is in the two wide indexes so that a filtered total reads no rows.
CREATE INDEX handoffs_by_update ON handoffs (tenant, updated_at, id, state);
CREATE INDEX handoffs_by_sender ON handoffs (tenant, sender, updated_at, id, state);
CREATE INDEX handoffs_by_context ON handoffs (tenant, context_id);
CREATE INDEX handoffs_by_chain ON handoffs (correlation_id);
-- Small, since nearly all handoffs have ended: holders, inboxes, who waits and for how long.
CREATE INDEX handoffs_open ON handoffs (state, tenant, holder, updated_at) WHERE open = 1;

CREATE TABLE chains (
    correlation_id   TEXT NOT NULL PRIMARY KEY,
    tenant           TEXT NOT NULL,
    trace_id         TEXT NOT NULL,
    first_handoff_id TEXT NOT NULL,
    started_at       REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE request_keys (
    tenant     TEXT NOT NULL,
    sender     TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    handoff_id TEXT NOT NULL,
    PRIMARY KEY (tenant, sender, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE aliases (
    tenant     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    alias      TEXT NOT NULL,
    handoff_id TEXT NOT NULL,
    PRIMARY KEY (tenant, owner, alias)
) STRICT, WITHOUT ROWID;

-- An empty owner means that nobody holds the item.
CREATE TABLE work (
    handoff_id TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    ref        TEXT    NOT NULL,
    due_at     REAL    NOT NULL,
    wake_at    REAL    NOT NULL,  -- due_at, or while held the end of the lease
    owner      TEXT    NOT NULL,
    claims     INTEGER NOT NULL,
    orphaned   INTEGER NOT NULL,
    PRIMARY KEY (handoff_id, kind, attempt, ref)
) STRICT, WITHOUT ROWID;

CREATE INDEX work_by_wake ON work (wake_at, owner);

CREATE TABLE agents (
    tenant   TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (tenant, agent_id)
) STRICT;

CREATE TABLE marks (
    name     TEXT    NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
