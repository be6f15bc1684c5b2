"""Many runs: random seeds, a fault at every call, and the smallest form of a failure.

Private to `lakestate.testing`: other packages import `lakestate.testing.simulation`. May import all of the
simulator; only its command line imports `campaigns`, and the pytest plugin.
"""
