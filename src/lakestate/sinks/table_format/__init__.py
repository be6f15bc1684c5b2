"""What sinks for table formats share: the files of an epoch, types of columns, rows in a table's schema.

May import `files`, `formats`, `partitioning` and `staged`, and no table format.
"""
