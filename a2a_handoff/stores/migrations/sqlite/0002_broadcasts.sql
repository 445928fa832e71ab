-- Messages to all agents of a workspace. They are no part of the log: they expire, and are then gone.

CREATE TABLE broadcasts (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: it is a cursor
    id         TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    workspace  TEXT NOT NULL,
    channel    TEXT NOT NULL,
    sender     TEXT NOT NULL,
    message    TEXT NOT NULL,
    data       BLOB NOT NULL,  -- JSON as it came, or empty
    at         REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT;

CREATE INDEX broadcasts_by_tenant ON broadcasts (tenant, position);
CREATE INDEX broadcasts_by_expiry ON broadcasts (expires_at);
