"""Commands that look at bytes and directories without serving them: `ottla dump` and `ottla formats`.

`trace` prints bytes by their construct schema, `describe` the schema itself; `frames`, `files` and `record_values` know
what is where. Nothing here writes, locks, or knows the event loop.
"""
