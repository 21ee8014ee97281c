#!/bin/sh
# build.sh SOURCE VENV: compiles SwitchML and installs it into VENV with everything that docker/requirements.txt names.
# Needs python3 (3.12 for these requirements), its headers and g++. VENV gets no pip: nothing is installed there later.
set -eu
source=$1
venv=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/tools"
pip="$work/tools/bin/python -m pip --disable-pip-version-check --no-cache-dir --quiet"
$pip install --requirement "$here/requirements-build.txt"
# Without isolation, or packages that come as sources would be built with whatever versions are new on that day.
PATH="$work/tools/bin:$PATH" $pip wheel --no-build-isolation --no-deps --wheel-dir "$work/wheels" \
  --config-settings build-dir="$work/tree" --requirement "$here/requirements.txt" "$source"

python3 -m venv --without-pip "$venv"
$pip --python "$venv/bin/python" install --no-index --no-deps "$work"/wheels/*.whl
$pip --python "$venv/bin/python" check
