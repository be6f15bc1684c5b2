"""File formats: how rows become bytes. One folder per format, and a line in `registry.py`.

A format knows nothing of stores, partitions or epochs. Only a format's `sink.py`, the sink that users
name, and its writer of local files, such as `ParquetLocalWriter`, import `files`. To avoid a cycle,
nothing is imported here: use `lakestate.sinks`, or the modules `format`, `appending_writer` and `registry`.
"""
