"""Measures of `make bench`, and the brokers and processes that they measure."""
