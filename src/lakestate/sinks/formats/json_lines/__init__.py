"""Files of JSON lines that stay open across epochs."""
