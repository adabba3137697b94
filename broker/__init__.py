"""The broker: the only package that knows asyncio, sockets and configuration."""
