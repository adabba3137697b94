"""The census: counts the contents of log directories piece by piece in tasks, and adds them up to a report."""
