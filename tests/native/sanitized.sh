#!/bin/sh
# Builds the native code under a sanitizer and runs tests with it:
#   sanitized.sh units        the native unit tests under ASan and UBSan
#   sanitized.sh asan [TEST]  these, and the tests of the extension modules
#   sanitized.sh tsan [TEST]  the same under ThreadSanitizer; TEST: arguments of pytest, instead of all these tests
#   sanitized.sh threads      of the tests under ThreadSanitizer those in which threads of the native code work at once
# It needs .venv (`make venv`).
set -eu
cd "$(dirname "$0")/../.."
what="$1"
shift
bin="$PWD/.venv/bin"
googletest=$(ls -d .venv/src/gtest_vendor 2>/dev/null || true)
googletest="-DSWITCHML_TESTS=ON -DSWITCHML_GTEST=${googletest:+$PWD/$googletest}"

modules="tests/unit/test_kernels.py tests/unit/test_lane_kernels.py tests/unit/test_softswitch_kernels.py
  tests/unit/test_softswitch_pipeline.py tests/loopback/test_softswitch_*.py tests/loopback/test_shm_port.py
  tests/loopback/test_collectives*.py tests/loopback/test_udp_threads.py"
# Ranks, progress threads, data threads, shards, ports, and calls that change the switch's tables. The others repeat these
# with other values, dtypes and lanes, or test code of a single thread.
threads="tests/loopback/test_shm_port.py tests/loopback/test_udp_threads.py tests/loopback/test_softswitch_udp.py
  tests/loopback/test_softswitch_frames.py tests/loopback/test_softswitch_packet_ports.py tests/loopback/test_collectives.py
  tests/loopback/test_collectives_parts.py tests/loopback/test_collectives_sparse.py"
# Tests that count timeouts, or wait for many, take too long under ThreadSanitizer.
slow="not million and not test_ranks_over_both and not (test_sparse_sums and 0.1)"
repeated="$slow and not test_sparse_sums and not test_a_column and not (test_float32 and not normal)"

# 4,096 streams take a minute and show nothing that 1,024 do not, and DPDK's own code is not instrumented.
unit_tests() {
  # shellcheck disable=SC2086 # a list of options
  "$bin/cmake" --log-level=WARNING -G Ninja -S . -B "build/$1" -DCMAKE_MAKE_PROGRAM="$bin/ninja" $googletest $2
  "$bin/cmake" --build "build/$1" --target native_tests
  "$bin/ctest" --test-dir "build/$1/tests/native" --output-on-failure --no-tests=error --parallel 2 \
    --exclude-regex 'StreamsOfRanks.*/4096|^dpdk\.'
}

# A separate environment with the extension modules.
environment() {
  tools=$(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",')
  python3 -m venv ".venv-$1"
  # shellcheck disable=SC2086 # a list of packages
  ".venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check $tools cmake ninja wheel hypothesis ml-dtypes \
    pytest pytest-asyncio pytest-timeout pytest-xdist
  ".venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation \
    --config-settings "build-dir=build/$1" --config-settings "cmake.define.SWITCHML_SANITIZE=$2" .
}

# The library of a sanitizer, to be preloaded: the interpreter is not instrumented.
library() { g++ -print-file-name="$1"; }

tests() { ".venv-$what/bin/pytest" -n 2 --dist worksteal "$@"; }

under_tsan() {
  report="$PWD/build/tsan-report" # in a file, because pytest would lose what a process writes just before its end
  rm -f "$report".*
  export LD_PRELOAD TSAN_OPTIONS
  TSAN_OPTIONS="suppressions=$PWD/tests/native/tsan.supp halt_on_error=1 log_path=$report"
  LD_PRELOAD=$(library libtsan.so)
  tests "$@" || { cat "$report".*; exit 1; }
}

# shellcheck disable=SC2086 # lists of tests
case "$what" in
  units)
    unit_tests units "-DSWITCHML_MODULES=OFF -DSWITCHML_SANITIZE=address,undefined"
    ;;
  asan)
    environment asan address,undefined
    [ $# -gt 0 ] || unit_tests asan ""
    [ $# -gt 0 ] || set -- $modules
    # libstdc++ is preloaded too: without it, the first C++ exception would end the process.
    LD_PRELOAD="$(library libasan.so) $(library libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 tests "$@"
    ;;
  tsan)
    environment tsan thread
    [ $# -gt 0 ] || unit_tests tsan ""
    [ $# -gt 0 ] || set -- $modules -k "$slow"
    under_tsan "$@"
    ;;
  threads)
    what=tsan
    environment tsan thread
    under_tsan $threads -k "$repeated"
    ;;
  *)
    sed -n 's/^#   //p' "$0" >&2
    exit 2
    ;;
esac
