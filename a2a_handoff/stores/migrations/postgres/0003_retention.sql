-- So that what belongs to a handoff is found when its chain is old enough to go.

CREATE INDEX request_keys_by_handoff ON request_keys (handoff_id);
CREATE INDEX aliases_by_handoff ON aliases (handoff_id);
