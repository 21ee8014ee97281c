#!/bin/sh
# address.sh NAME: prints the first IPv4 address of a host name; an IPv4 address is printed unchanged.
set -eu
address=$(getent ahostsv4 "$1" | head -n 1 | cut -d ' ' -f 1)
if [ -z "$address" ]; then
  echo "address.sh: no IPv4 address is known for $1" >&2
  exit 1
fi
echo "$address"
