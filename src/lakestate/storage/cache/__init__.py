"""The run cache: a bounded directory of immutable files, shared by all processes of a host."""
