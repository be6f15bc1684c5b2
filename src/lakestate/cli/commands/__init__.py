"""The commands, a file for each or for those that belong together. Each hands a value to the output.

They may import everything, and no other command; `registry` lists them.
"""
