-- So that the few that failed, came back, expired or were canceled are found among all that went well. The table is
-- read for it once; who writes waits for that.

CREATE INDEX handoffs_without_result ON handoffs (tenant, state, updated_at, id) INCLUDE (sender)
    WHERE state IN ('canceled', 'expired', 'failed', 'returned');
