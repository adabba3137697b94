"""Consumer groups: their state machines as tables, and the shell that performs their effects."""
