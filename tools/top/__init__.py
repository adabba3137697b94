"""`ottla top`: what goes on in a running broker, live in a terminal, or once as text or JSON.

`rates.py` makes rates of answers of the control plane, `tables.py` says what is shown of them and how, `plain.py`
prints that, `app.py` is the screen (it needs the extra `top`), and `command.py` the command line.
"""
