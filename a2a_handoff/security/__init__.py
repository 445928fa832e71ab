"""Who calls, and which addresses may be called."""
