"""Benchmarks, each a module `bench_<name>.py` with a declaration `BENCHMARK` and a function `measure`."""
