#!/bin/sh
exec /opt/ottla/bin/python3 -m ottla.tools.image storage "$@"
