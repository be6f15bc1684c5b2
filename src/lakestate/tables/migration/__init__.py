"""State of older versions, brought into the declared one when it is read."""
