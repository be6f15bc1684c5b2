"""Files that stay open across epochs: where their bytes go, and how they become visible."""
