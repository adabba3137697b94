"""The command `ottla` and its subcommands: a layer above the broker and the client.

Owns the command lines. A subcommand is an entry point (`ottla.commands` in pyproject.toml).
"""
