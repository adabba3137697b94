#!/bin/sh
exec /opt/ottla/bin/python3 -m ottla.tools.kafka.broker_api_versions "$@"
