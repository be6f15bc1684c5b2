"""Object stores in memory that report every change to an observer.

Private to the simulator: other packages import `lakestate.testing.simulation`.
"""
