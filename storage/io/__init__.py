"""Files: those of the system, those in memory, and layers that keep changes aside or undo them."""
