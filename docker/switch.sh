#!/bin/sh
# The soft switch: P4Runtime on TCP port 9559, one switch port on UDP port 48864.
# It uses no TLS, because only this fabric's containers are on its bridge. Arguments are passed on to switchml-switch, as
# in: switch.sh --drop 0.01 --seed 7
#   SWITCHML_ADDRESS  IPv4 address of both; by default that of this host's name
set -eu
here=$(dirname "$0")
address=${SWITCHML_ADDRESS:-$("$here/address.sh" "$(uname -n)")}
exec switchml-switch --insecure --grpc "$address:9559" --udp-port "1=$address:48864" "$@"
