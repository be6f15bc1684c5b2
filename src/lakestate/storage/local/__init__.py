"""Objects as files below a directory: atomic, durable, safe between processes."""
