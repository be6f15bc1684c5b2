"""Parquet files that are written one row group at a time, in any process.

`format.py` is the file format, `sink.py` the sink that users name. Everything else is private.
May import `formats`, and `tables.arrow`; only `sink.py` and `local_writer.py` import `files`. Nothing is
imported here, as in `formats`.
"""
