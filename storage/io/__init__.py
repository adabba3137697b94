"""Files of the system and in memory, and layers that redirect or undo changes."""
