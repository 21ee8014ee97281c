#!/bin/sh
# install-packages.sh REQUIREMENTS VENV: makes VENV with the packages of a requirements file, of which each has its hash.
# Runs with the Python and the build tools of PATH (docker/requirements-build.txt). VENV gets no pip.
set -eu
requirements=$1
venv=$2
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

# Without isolation, or packages that come as sources would be built with whatever versions are new on that day.
pip wheel --no-build-isolation --no-deps --require-hashes --wheel-dir "$wheels" --requirement "$requirements"
python -m venv --without-pip "$venv"
pip --python "$venv/bin/python" install --no-index --no-deps "$wheels"/*.whl
