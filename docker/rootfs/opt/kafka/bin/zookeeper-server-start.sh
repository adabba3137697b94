#!/bin/sh
# Scripts for older images start one first; the broker needs none.
exit 0
