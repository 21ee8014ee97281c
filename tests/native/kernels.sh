#!/bin/sh
# Builds tests/native/kernels_agree.cc for this machine ("native") or for 64-bit ARM under qemu ("neon") and runs it with
# the remaining arguments. If the tools for ARM are missing, it says so and succeeds.
set -eu
cd "$(dirname "$0")/../.."
what="$1"
shift
case "$what" in
  native) compiler="${CXX:-g++}" emulator="" system="" ;;
  neon)
    if [ "$(uname -m)" = aarch64 ]; then
      compiler="${CXX:-g++}" emulator="" system=""
    else
      compiler=aarch64-linux-gnu-g++ emulator=qemu-aarch64
      system="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64"
      for tool in "$compiler" "$emulator"; do
        command -v "$tool" >/dev/null || {
          echo "skipped: $tool is not on PATH; on Debian or Ubuntu: sudo apt-get install g++-aarch64-linux-gnu qemu-user"
          exit 0
        }
      done
    fi
    ;;
  *)
    echo "usage: $0 native|neon [--all]" >&2
    exit 2
    ;;
esac
build="build/native-$what"
cmake -G Ninja -S . -B "$build" --log-level=WARNING -DSWITCHML_MODULES=OFF -DCMAKE_CXX_COMPILER="$compiler" $system
cmake --build "$build" --target kernels_agree
$emulator "$build/tests/native/kernels_agree" "$@"
