"""State tables: declarations, views, runs, checkpoints, migration, compaction. No Spark here."""
