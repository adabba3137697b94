"""The command `ottla` and its subcommands: a layer above the broker and the client.

Owns the command lines. The subcommands are listed in `main.py`.
"""
