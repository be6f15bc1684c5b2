"""`GlobalKeyedTable`: typed Python keys and values, replicated to every subtask."""
