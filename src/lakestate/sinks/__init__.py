"""Sinks: exactly-once output that stays open across epochs."""
