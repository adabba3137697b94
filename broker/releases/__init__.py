"""Kafka's releases as data: versions of APIs, configs, features and behaviours by release."""
