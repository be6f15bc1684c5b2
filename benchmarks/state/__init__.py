"""What a job's state costs: epochs, lookups, recovery, bytes and requests, on Spark and without it."""
