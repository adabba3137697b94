"""`ottla top`: the activity of a running broker, live in a terminal, or once as text or JSON.

`rates.py` computes rates from responses of the control plane, `tables.py` defines and prints the tables, `app.py` is
the screen (it needs the extra `top`), and `command.py` the command line.
"""
