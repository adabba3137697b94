"""Messages of access control lists, SCRAM credentials and delegation tokens."""
