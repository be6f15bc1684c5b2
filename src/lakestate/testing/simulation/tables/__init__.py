"""Tables as the target of a sink: real writers, committers and libraries, over simulated stores and calls.

Private to the simulator: other packages import `lakestate.testing.simulation`. `deltalake` and `pyiceberg`
are imported only by histories that have a table of theirs. May import what `cluster` may, and `cluster/world`
and `cluster/process`.
"""
