"""The queries of Nexmark, the benchmark of an online auction: what streaming engines are compared by.

Each `q….py` is one query on Lakestate, and `q….sql` beside it the same question asked of all events at once,
in DuckDB. `job.py` makes the streams and the pipeline, and `python -m examples.nexmark q5` runs a query.
"""
