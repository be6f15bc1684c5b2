"""Object stores in memory that report every change to an observer."""
