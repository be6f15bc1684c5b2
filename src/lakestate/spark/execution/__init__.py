"""One epoch as Spark work: routed frames, the subtask inside a task, compaction beside the stream."""
