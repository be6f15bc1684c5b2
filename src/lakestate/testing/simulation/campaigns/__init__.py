"""Many runs: random seeds, a fault at every call, and the smallest form of a failure.

Private to the simulator: other packages import `lakestate.testing.simulation`.
"""
