#!/bin/sh
# packet-tests.sh soft|bmv2 [--tests PATTERN]: starts a switch and runs the packet tests on it; fails if it is missing.
set -eu
cd "$(dirname "$0")/.." # ptf_tests is not installed
exec python -m ptf_tests.run --required --target "$@"
