"""Nexmark beside Spark and Flink: the same events, the same questions, each contender in its own words."""
