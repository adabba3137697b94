"""A recording played again: its requests sent to another broker, and the answers of both compared field by field.

Owns what `ottla replay` and `ottla diff` do. What a recording is, and how it is read, is `recording`'s. No kin of
`ottla pipeline replay`, which sends records of a log again, with clients of its own.
"""
