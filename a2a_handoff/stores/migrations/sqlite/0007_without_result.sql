-- So that the few that failed, came back, expired or were canceled are found among all that went well.

CREATE INDEX handoffs_without_result ON handoffs (tenant, state, updated_at, id, sender)
    WHERE state IN ('canceled', 'expired', 'failed', 'returned');
