"""The control plane over HTTP: an adapter of `broker/admin_api/`, with web pages for people in `web/`.

`ottla serve` imports it only with `--control`.
"""
