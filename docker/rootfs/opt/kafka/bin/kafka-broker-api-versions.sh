#!/bin/sh
exec /opt/ottla/bin/python3 -m ottla.broker.tools.kafka_api_versions "$@"
