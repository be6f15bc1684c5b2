"""One subtask of one stage for one epoch, without an engine."""
