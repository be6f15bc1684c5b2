"""`StagedTable`: rows of one epoch, which a sink delivers once it is published. See `sinks/staged/`."""
