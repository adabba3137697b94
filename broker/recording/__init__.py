"""Requests and responses as the wire had them: the tap that hands them out while a broker runs, the ring of the newest,
recordings in files, and the decoding of frames. `exchange.py` has the values that everything here is about.
"""
