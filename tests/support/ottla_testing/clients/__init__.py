"""Client libraries of all ages with one interface, and the broker processes that they connect to."""
