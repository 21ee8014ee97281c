#!/bin/sh
# The controller of one switch, on TCP port 7600; without TLS, because its bridge is internal.
#   SWITCHML_ADDRESS         IPv4 address to listen on; by default that of this host's name
#   SWITCHML_STATE_DIR       directory of its store
#   SWITCHML_P4RUNTIME       HOST:PORT of the switch's P4Runtime server
#   SWITCHML_TARGET          soft (default) or bmv2
#   SWITCHML_PROGRAM         P4 program of bmv2: switchml (default) or switchml_floats, which adds floats
#   SWITCHML_SWITCH_ADDRESS  name or IPv4 address of the switch's data plane
#   SWITCHML_SWITCH_MAC      its MAC address; without one on the soft switch's UDP ports
set -eu
here=$(dirname "$0")
address=${SWITCHML_ADDRESS:-$("$here/address.sh" "$(uname -n)")}
switch=$("$here/address.sh" "$SWITCHML_SWITCH_ADDRESS")
configuration="$SWITCHML_STATE_DIR/controller.toml"
cat > "$configuration" <<END
[controller]
listen = "$address:7600"
store = "$SWITCHML_STATE_DIR/controller.sqlite"
insecure = true

[[switches]]
name = "s1"
target = "${SWITCHML_TARGET:-soft}"
program = "${SWITCHML_PROGRAM:-switchml}"
p4runtime = "$SWITCHML_P4RUNTIME"
address = "$switch"
mac = "${SWITCHML_SWITCH_MAC:-00:00:00:00:00:00}"
END
exec switchml-controller --config "$configuration"
