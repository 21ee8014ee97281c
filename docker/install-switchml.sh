#!/bin/sh
# install-switchml.sh BUILD: installs the wheel of BUILD/wheels into the image's environment with the tools of BUILD/tools,
# and compiles what lies in the image as source.
set -eu
pip="$1/tools/bin/python -m pip --disable-pip-version-check --quiet --python /opt/switchml/venv/bin/python"
$pip install --no-cache-dir --no-index --no-deps "$1"/wheels/*.whl
$pip check
python -m compileall -q /opt/switchml
