"""`ottla clients`: the clients that a broker has seen, and the calls that another release would refuse."""
