"""A corner shop on Kafka: orders are checked out, totalled, paid and booked; each part runs on any of three clients."""
