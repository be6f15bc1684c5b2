"""What must hold during a run and at its end, checked independently of the code under test.

Private to the simulator: other packages import `lakestate.testing.simulation`. May import every layer but
`spark`, and the simulator except `campaigns`.
"""
