"""Runs: immutable sorted files of rows, how they are written, searched, merged and cached."""
