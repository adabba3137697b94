"""Messages about configs and quotas."""
