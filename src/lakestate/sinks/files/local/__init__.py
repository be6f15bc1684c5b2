"""Files of a sink that grow in a local directory: hidden until a rename makes them visible.

`output` knows the directory, `growing_file` and `writer` one file in the hands of one attempt,
`destinations` opens them, and `attempts` tells from a hidden name who made the file and whether it is dead.
May import `files` and `formats`. To avoid a cycle, nothing is imported here: use the modules.
"""
