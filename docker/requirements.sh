#!/bin/sh
# Resolves the packages of the images again, with their hashes, for the Python version of the Dockerfile. Versions already in
# the files are kept unless a requirement changes them; `docker/requirements.sh --upgrade` takes newer ones. It needs .venv.
set -eu
cd "$(dirname "$0")/.."
resolve() {
  .venv/bin/uv pip compile --quiet --python-version 3.12 --generate-hashes --no-annotate \
    --custom-compile-command docker/requirements.sh "$@"
}
resolve "$@" --output-file docker/requirements.txt pyproject.toml
resolve "$@" --output-file docker/requirements-test.txt --constraint docker/requirements.txt --extra demo --extra ptf pyproject.toml
{
  sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '"' | tr ',' '\n'
  printf '%s\n' cmake ninja wheel pip setuptools wheel
} | resolve "$@" --output-file docker/requirements-build.txt -
