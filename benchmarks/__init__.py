"""Benchmarks: one module `bench_<name>.py` each, with a declaration `BENCHMARK` and a function `measure`."""
