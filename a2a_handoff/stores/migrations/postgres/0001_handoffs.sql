-- The log is the truth; every other table can be told from it, or is work in hand.
-- Times are epoch seconds. Texts compare by code point, whatever the database was made with.

CREATE TABLE a2a_handoff_schema (
    version INTEGER NOT NULL
);
INSERT INTO a2a_handoff_schema VALUES (0);

-- One row, the highest positions that were ever given. Whoever writes holds it until the transaction ends, so
-- positions become visible in their order and without gaps.
CREATE TABLE positions (
    events     BIGINT NOT NULL,
    broadcasts BIGINT NOT NULL
);
INSERT INTO positions VALUES (0, 0);

CREATE TABLE events (
    position   BIGINT PRIMARY KEY,        -- over all handoffs, in commit order
    handoff_id TEXT COLLATE "C" NOT NULL,
    seq        INTEGER NOT NULL,          -- from 1 within the handoff
    type       TEXT COLLATE "C" NOT NULL,
    body       BYTEA NOT NULL
);

CREATE UNIQUE INDEX events_by_handoff ON events (handoff_id, seq);

CREATE TABLE handoffs (
    id             TEXT COLLATE "C" PRIMARY KEY,
    tenant         TEXT COLLATE "C" NOT NULL,
    sender         TEXT COLLATE "C" NOT NULL,
    correlation_id TEXT COLLATE "C" NOT NULL,
    context_id     TEXT COLLATE "C" NOT NULL,
    created_at     DOUBLE PRECISION NOT NULL,
    updated_at     DOUBLE PRECISION NOT NULL,
    version        INTEGER NOT NULL,          -- how many events the log holds
    state          TEXT COLLATE "C" NOT NULL,
    open           BOOLEAN NOT NULL,          -- until the state is terminal
    holder         TEXT COLLATE "C" NOT NULL, -- empty unless open and offered or held
    face           TEXT COLLATE "C" NOT NULL, -- by which agent's face it came in; empty for the broker's address
    snapshot       BYTEA NOT NULL
);

-- Each index gives its rows in the order of a listing, so that the planner need not choose between few rows
-- and the right order. The state is in the two wide ones so that a filtered total reads no rows.
CREATE INDEX handoffs_by_update ON handoffs (tenant, updated_at, id) INCLUDE (state);
CREATE INDEX handoffs_by_sender ON handoffs (tenant, sender, updated_at, id) INCLUDE (state);
CREATE INDEX handoffs_by_context ON handoffs (tenant, context_id, updated_at, id);
CREATE INDEX handoffs_by_chain ON handoffs (correlation_id, updated_at, id);
CREATE INDEX handoffs_by_face ON handoffs (tenant, face, updated_at, id) WHERE face <> '';
-- Small, since nearly all handoffs have ended: inboxes; who waits and for how long.
CREATE INDEX handoffs_by_holder ON handoffs (tenant, holder, updated_at, id) WHERE open;
CREATE INDEX handoffs_open ON handoffs (state, updated_at) WHERE open;

CREATE TABLE chains (
    correlation_id   TEXT COLLATE "C" PRIMARY KEY,
    tenant           TEXT COLLATE "C" NOT NULL,
    trace_id         TEXT COLLATE "C" NOT NULL,
    first_handoff_id TEXT COLLATE "C" NOT NULL,
    started_at       DOUBLE PRECISION NOT NULL
);

CREATE TABLE request_keys (
    tenant     TEXT COLLATE "C" NOT NULL,
    sender     TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    handoff_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, sender, key)
);

CREATE TABLE aliases (
    tenant     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    alias      TEXT COLLATE "C" NOT NULL,
    handoff_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, owner, alias)
);

-- An empty owner means that nobody holds the item.
CREATE TABLE work (
    handoff_id TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    attempt    INTEGER NOT NULL,
    ref        TEXT COLLATE "C" NOT NULL,
    due_at     DOUBLE PRECISION NOT NULL,
    wake_at    DOUBLE PRECISION NOT NULL,  -- due_at, or while held the end of the lease
    owner      TEXT COLLATE "C" NOT NULL,
    claims     INTEGER NOT NULL,
    orphaned   BOOLEAN NOT NULL,
    PRIMARY KEY (handoff_id, kind, attempt, ref)
);

CREATE INDEX work_by_wake ON work (wake_at);
CREATE INDEX work_free ON work (wake_at) WHERE owner = '';
CREATE INDEX work_held ON work (owner) WHERE owner <> '';

CREATE TABLE agents (
    tenant   TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    body     BYTEA NOT NULL,
    PRIMARY KEY (tenant, agent_id)
);

CREATE TABLE marks (
    name     TEXT COLLATE "C" PRIMARY KEY,
    position BIGINT NOT NULL
);

-- Messages to all agents of a workspace. They are no part of the log: they expire, and are then gone.
CREATE TABLE broadcasts (
    position   BIGINT PRIMARY KEY,  -- never given twice: it is a cursor
    id         TEXT COLLATE "C" NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    workspace  TEXT COLLATE "C" NOT NULL,
    channel    TEXT COLLATE "C" NOT NULL,
    sender     TEXT COLLATE "C" NOT NULL,
    message    TEXT COLLATE "C" NOT NULL,
    data       BYTEA NOT NULL,  -- JSON as it came, or empty
    at         DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);

CREATE INDEX broadcasts_by_tenant ON broadcasts (tenant, position);
CREATE INDEX broadcasts_by_expiry ON broadcasts (expires_at);

-- Where clients want to be told of their tasks, and how far they were. The outbox is the log itself.
CREATE TABLE webhooks (
    handoff_id TEXT COLLATE "C" NOT NULL REFERENCES handoffs ON DELETE CASCADE,
    id         TEXT COLLATE "C" NOT NULL,
    edition    TEXT COLLATE "C" NOT NULL,  -- another one each time that it is set; the ref of its work
    body       BYTEA NOT NULL,
    PRIMARY KEY (handoff_id, id)
);
