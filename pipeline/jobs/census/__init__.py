"""The census: what lies in log directories, counted piece by piece in tasks, added up, and reported."""
