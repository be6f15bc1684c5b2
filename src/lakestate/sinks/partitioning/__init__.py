"""Which directory each row goes to."""
