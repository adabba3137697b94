"""The page at the control address: what a broker holds and what happens in it, for people with a browser.

Made on the server from Jinja2 templates; the one script refreshes what is shown in place and knows some keys, and all
works without it. Nothing is fetched from elsewhere. It reads; it changes something only where the broker was started
with `--control-write`.
"""
