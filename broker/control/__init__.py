"""The control plane over HTTP: an adapter of `broker/admin_api/`, with a page for people in `web/`.

Nothing here is imported by `ottla serve` unless `--control` asks for it.
"""
