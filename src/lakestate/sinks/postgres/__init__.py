"""PostgreSQL: rows appended, or kept by key, each epoch in one transaction with its marker.

- `sink.py` is what users declare. `table.py` and `types.py` check the target before the first epoch.
- `rows.py` refuses rows that the target could never hold, before their epoch is published, and encodes them.
- `marker.py` is the table that records which epoch the target holds; `delivery.py` is the transaction.

`connection.py` is the only module that opens connections and translates the errors of psycopg.
"""

from lakestate.sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
