"""Operators: what users write, and the ones that come with Lakestate."""
