"""Bytes to values and back: messages, records, framing. No I/O, no clock, no event loop."""
