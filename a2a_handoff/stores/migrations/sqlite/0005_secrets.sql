-- Random secrets of this store, each made when it is first needed; every broker on the store has the same.

CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
