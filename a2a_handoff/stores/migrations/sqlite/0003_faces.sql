-- By which agent's face a handoff came in; empty for the broker's own address.

ALTER TABLE handoffs ADD COLUMN face TEXT NOT NULL DEFAULT '';

CREATE INDEX handoffs_by_face ON handoffs (tenant, face, updated_at, id, state) WHERE face <> '';
