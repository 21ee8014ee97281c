#!/bin/sh
# packet-tests.sh soft|bmv2 [--tests PATTERN]: runs the packet tests on a switch of their own, and fails without one.
set -eu
cd "$(dirname "$0")/.." # ptf_tests is not installed
exec python -m ptf_tests.run --required --target "$@"
