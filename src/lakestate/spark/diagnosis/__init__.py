"""Whether a machine can run jobs, and may do everything with a store that a job does.

May import what `spark` may. Spark itself is imported only by the check that starts it.
"""
