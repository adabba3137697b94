"""Requests and responses: the tap that hands them to subscribers, the ring of the newest, recordings in files, and the
decoding of frames. `exchange.py` has the values that the other modules share.
"""
