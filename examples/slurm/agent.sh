#!/bin/bash
# The agent of one node. agents.sh starts it and explains the variables.
set -euo pipefail
address=$(ip -4 -oneline route get "$SWITCHML_SWITCH_ADDRESS" | sed -n 's/.* src \([0-9.]*\).*/\1/p')
mkdir -m 0700 "$SWITCHML_RUN_DIR" || test -O "$SWITCHML_RUN_DIR"  # it exists if the job was requeued
exec switchml-agent --name "$(uname -n)-$SLURM_JOB_ID" --address "$address" \
  --socket "$SWITCHML_RUN_DIR/agent.sock" --ready-file "$SWITCHML_RUN_DIR/agent.ready"
