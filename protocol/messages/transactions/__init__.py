"""Messages of producer ids and transactions."""
