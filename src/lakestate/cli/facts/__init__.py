"""What commands read before they show it, of epochs, of this machine, of a store. Damage is a fact here.

May import everything that commands may, and no command; it prints nothing.
"""
