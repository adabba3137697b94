"""Client libraries of every age behind one interface, and the broker processes that they connect to."""
