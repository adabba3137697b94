"""One module per API: its request and its response, each declared once for all versions."""
