"""The web pages at the control address: the contents and activity of a broker, for people with a browser.

Pages are rendered on the server from Jinja2 templates. One script refreshes them in place and adds keyboard shortcuts;
every page works without it. Nothing is loaded from other sites. Pages only read, unless the broker was started with
`--control-write`.
"""
