"""What must hold during a run and at its end, checked independently of the code under test."""
