"""The objects of one job in its store: read and verified, created once, never interpreted.

May import `storage`, `codec` and `protocol`. The tables, the coordinator and the verification share it.
"""
