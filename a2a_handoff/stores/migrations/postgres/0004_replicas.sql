-- Brokers that share the database: who they are, and what each learns from the others.

-- Each broker from its start until it has said goodbye, or until what it left behind is taken care of. It lives
-- as long as a lock named after its owner is held.
CREATE TABLE replicas (
    id    INTEGER PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL UNIQUE,
    spans BIGINT,                     -- up to where its spans have left; none if it exports none
    heir  INTEGER NOT NULL DEFAULT 0  -- who sends what is missing of them, once it is dead
);
ALTER TABLE positions ADD COLUMN replicas INTEGER NOT NULL DEFAULT 0;  -- the highest number ever given
-- What was written before this step has one mark for all.
INSERT INTO replicas (id, owner, spans) SELECT 0, '', position FROM marks WHERE name = 'spans';

-- Who wrote an event; 0 is a version that did not say so.
ALTER TABLE events ADD COLUMN writer INTEGER NOT NULL DEFAULT 0;

-- Each change of an agent has a number, so that a broker reads those that it has not seen. Triggers give it: an
-- older broker that still runs changes agents too.
ALTER TABLE positions ADD COLUMN agents BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
CREATE INDEX agents_by_revision ON agents (revision);
CREATE TABLE agents_gone (
    tenant   TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    at       DOUBLE PRECISION NOT NULL,
    revision BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, agent_id)
);
CREATE INDEX agents_gone_by_revision ON agents_gone (revision);

CREATE FUNCTION a2a_handoff_revised() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE positions SET agents = agents + 1 RETURNING agents INTO NEW.revision;
    RETURN NEW;
END $$;
CREATE TRIGGER revised BEFORE INSERT OR UPDATE ON agents
    FOR EACH ROW EXECUTE FUNCTION a2a_handoff_revised();
CREATE TRIGGER revised BEFORE INSERT OR UPDATE ON agents_gone
    FOR EACH ROW EXECUTE FUNCTION a2a_handoff_revised();

CREATE FUNCTION a2a_handoff_agent_there() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM agents_gone WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id;
    RETURN NULL;
END $$;
CREATE TRIGGER there AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION a2a_handoff_agent_there();

CREATE FUNCTION a2a_handoff_agent_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM agents_gone WHERE at < extract(epoch FROM now()) - 86400;
    INSERT INTO agents_gone (tenant, agent_id, at) VALUES (OLD.tenant, OLD.agent_id, extract(epoch FROM now()))
    ON CONFLICT (tenant, agent_id) DO UPDATE SET at = excluded.at;
    RETURN NULL;
END $$;
CREATE TRIGGER gone AFTER DELETE ON agents FOR EACH ROW EXECUTE FUNCTION a2a_handoff_agent_gone();

-- When a broker last heard from an agent, and what that says of itself. It is a hint that is written anew all the
-- time, so it need not outlive a crash of the server. Times are those of the server.
CREATE UNLOGGED TABLE presence (
    tenant    TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    writer    INTEGER NOT NULL,           -- the broker
    heard_at  DOUBLE PRECISION NOT NULL,
    gone      BOOLEAN NOT NULL,           -- the last thing that it said is that it goes
    said_at   DOUBLE PRECISION NOT NULL,  -- when it said the two below; 0: never
    status    TEXT COLLATE "C" NOT NULL,
    in_flight INTEGER NOT NULL,
    noted_at  DOUBLE PRECISION NOT NULL,  -- when the row was written
    PRIMARY KEY (tenant, agent_id, writer)
);
CREATE INDEX presence_by_note ON presence (noted_at);
