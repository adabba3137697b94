"""Authorization: access control lists, their storage, and the decisions of the authorizer (KIP-11)."""
