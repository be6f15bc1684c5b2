"""What writing results costs, and how soon readers see them."""
