"""Rows of state tables on their way out: keys as they are typed, SQL, listings, Parquet files.

May import everything that commands may, and no command.
"""
