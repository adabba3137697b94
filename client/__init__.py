"""A small asyncio client over `ottla.protocol`."""
