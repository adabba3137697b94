"""SASL on the side of the broker: settings of listeners, mechanisms, and the order of requests of a connection."""
