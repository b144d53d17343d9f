#!/bin/sh
# Starts the server in a container. All processes of an earlier container have ended with it, so their control
# groups are removed first: the server then finds every sandbox asleep.
set -eu
isolet teardown
exec isolet serve "$@"
