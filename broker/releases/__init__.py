"""Kafka releases as data: API versions, configs, features and behaviours by release."""
