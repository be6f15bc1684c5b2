"""`TimeKeyTable`: many rows per key, each with an event time, expired by time."""
