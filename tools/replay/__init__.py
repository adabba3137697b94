"""`ottla replay` and `ottla diff`: send recorded requests to another broker and compare the responses by field.

The format of recordings belongs to `broker/recording/`. Not related to `ottla pipeline replay`, which sends the records
of a log again with clients of its own.
"""
