"""Commits of epochs to a table: which files are added or replaced, the snapshots, and what is recorded.

May import the modules of `iceberg` except the sink, and `files`. Needs pyiceberg.
"""
