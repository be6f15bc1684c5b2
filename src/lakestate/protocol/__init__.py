"""Pure values and decisions of the epoch protocol. Standard library only, no I/O, no clock.

Observed facts go in, a frozen decision comes out: `resolve`, `publication`, `plan_retention`,
`plan_compaction`, `plan_rescale`, `compatibility`. Whoever does I/O asks here what to do.
"""
