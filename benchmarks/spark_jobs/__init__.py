"""The session of the benchmarks, and jobs that several of them run and time."""
