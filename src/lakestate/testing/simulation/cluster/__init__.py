"""The simulated cluster: who acts, in which order, in which process, and on which host.

Private to the simulator: other packages import `lakestate.testing.simulation`. May import every layer but
`spark`, and the simulator except `campaigns`.
"""
