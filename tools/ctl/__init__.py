"""`ottla ctl`: the control plane of a running broker from a terminal."""
