"""Who may do what: access control lists, how they are stored, and what an authorizer decides by them (KIP-11)."""
