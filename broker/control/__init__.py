"""What a test may ask of a running broker: as operations on its loop, over HTTP, and as the command `ottla ctl`.

Nothing here is imported by `ottla serve` unless it is asked for with `--control`.
"""
