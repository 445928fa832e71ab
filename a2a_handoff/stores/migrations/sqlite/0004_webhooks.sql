-- Where clients want to be told of their tasks, and how far they were. The outbox is the log itself.

CREATE TABLE webhooks (
    handoff_id TEXT NOT NULL,
    id         TEXT NOT NULL,
    edition    TEXT NOT NULL,  -- another one each time that it is set; the ref of its work
    body       BLOB NOT NULL,
    PRIMARY KEY (handoff_id, id)
) STRICT;

CREATE TRIGGER webhooks_go_with_their_task AFTER DELETE ON handoffs BEGIN
    DELETE FROM webhooks WHERE handoff_id = old.id;
END;
