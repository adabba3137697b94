#!/bin/sh
exec /opt/ottla/bin/python3 -IS /opt/kafka/zookeeper.py "$@"
