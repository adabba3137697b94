"""What clients asked and what they were answered, as the wire had it: the tap, the newest of it, recordings, and what
tests expect of it.

`exchange.py` has the values that everything here is about, `tap.py` hands them out while a broker runs, `ring.py` keeps
the newest, `decoding.py` reads them, `expectations.py` holds them against what a test says.
"""
