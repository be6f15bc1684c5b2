"""Benchmarks: one module `bench_<name>.py` each, with a function `main()` that prints what it measured."""
