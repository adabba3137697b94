"""One module per API, by subject: its request and its response, each declared once for all versions."""
