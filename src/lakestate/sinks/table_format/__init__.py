"""What sinks for table formats share: files of an epoch, which of them replace others, types, and rows.

May import `files`, `formats`, `partitioning` and `staged`, and no table format.
"""
