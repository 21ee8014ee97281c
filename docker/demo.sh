#!/bin/sh
# The demo job: eight workers train on handwritten digits. Arguments are passed on to examples/train_digits.py.
# Exit status 0: the accuracy is the same as without a network, and all workers have the same parameter bits.
#   SWITCHML_CONTROLLER  HOST:PORT of the controller
#   SWITCHML_RUN_DIR     logs and results go to jobs/ in it
set -eu
here=$(dirname "$0")
exec switchml-ctl --insecure job start --workers 8 -- python "$here/../examples/train_digits.py" "$@"
