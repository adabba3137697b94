"""`ottla clients`: which clients a broker has seen, and which releases would refuse them."""
