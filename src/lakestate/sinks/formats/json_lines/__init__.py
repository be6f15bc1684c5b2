"""Files of JSON lines, compressed or not.

`format.py` is the file format, `sink.py` the sink that users name. `writer.py` is private. May
import `formats`; only `sink.py` imports `files`. Nothing is imported here, as in `formats`.
"""
