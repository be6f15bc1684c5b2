"""Object stores in memory that report every change to an observer.

Private to the simulator: other packages import `lakestate.testing.simulation`. May import `job`, `storage`
and what is below them, and nothing else of the simulator.
"""
