#!/bin/sh
# install-packages.sh REQUIREMENTS VENV: creates VENV with the packages of a requirements file, verified by hash.
# Runs with the Python and the build tools of PATH (docker/requirements-build.txt). VENV gets no pip.
set -eu
requirements=$1
venv=$2
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

# Without isolation: otherwise source packages would be built with the newest build tools instead of the pinned ones.
pip wheel --no-build-isolation --no-deps --require-hashes --wheel-dir "$wheels" --requirement "$requirements"
python -m venv --without-pip "$venv"
pip --python "$venv/bin/python" install --no-index --no-deps "$wheels"/*.whl
