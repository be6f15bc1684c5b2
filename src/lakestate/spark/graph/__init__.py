"""The graph of a pipeline: its nodes, their columns, the stages it is cut into, and what is wrong with it."""
