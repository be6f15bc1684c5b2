"""The `lakestate` command: what is in the state of a job, and what a person does about it.

The top layer: it may import everything. Commands (`commands/`) compute values; an `Output` shows them, as a
table, as JSON or as CSV. `main` imports click and rich only when it runs, and names the extra that has them.
"""
