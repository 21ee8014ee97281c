#!/bin/sh
# An agent, named after its address. Its socket is SWITCHML_RUN_DIR/agent-ADDRESS.sock.
#   SWITCHML_CONTROLLER  HOST:PORT of the controller
#   SWITCHML_ADDRESS     IPv4 address of this host's data interface; by default that of this host's name
#   SWITCHML_PORT        switch port that it is attached to (default 1)
#   SWITCHML_MAC         MAC address of the data interface; without one on the soft switch's UDP ports
set -eu
here=$(dirname "$0")
address=${SWITCHML_ADDRESS:-$("$here/address.sh" "$(uname -n)")}
exec switchml-agent --insecure --name "agent-$address" --address "$address" --socket "$SWITCHML_RUN_DIR/agent-$address.sock" \
  --switch-port "${SWITCHML_PORT:-1}" --mac "${SWITCHML_MAC:-00:00:00:00:00:00}"
