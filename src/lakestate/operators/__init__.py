"""Operators: the stateful steps of a job, and how one subtask of them runs. None of it knows Spark."""
