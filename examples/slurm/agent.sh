#!/bin/bash
# The agent of one node, which runs until standard input ends. agents.sh starts it and explains the variables.
set -euo pipefail
READY_SECONDS=60  # to reach the controller
trap 'echo failed' EXIT
address=$(ip -4 -oneline route get "$SWITCHML_SWITCH_ADDRESS" | sed -n 's/.* src \([0-9.]*\).*/\1/p')
rm -rf "$SWITCHML_RUN_DIR"  # that of an earlier run, if the host crashed; fails if another user has created it
mkdir -m 0700 "$SWITCHML_RUN_DIR"
trap : TERM  # scancel sends it to the agent as well
switchml-agent --name "$(uname -n)-$SLURM_JOB_ID" --address "$address" --socket "$SWITCHML_RUN_DIR/agent.sock" \
  --ready-file "$SWITCHML_RUN_DIR/agent.ready" < /dev/null >&2 &
agent=$!
until [[ -e $SWITCHML_RUN_DIR/agent.ready ]]; do
  if ! kill -0 "$agent" 2> /dev/null || ((SECONDS > READY_SECONDS)); then
    echo "the agent on $(uname -n) did not register with the controller within $SECONDS s" >&2
    kill "$agent" 2> /dev/null || true
    exit 1
  fi
  sleep 0.2
done
trap - EXIT
echo ready
cat > /dev/null || true
kill "$agent" 2> /dev/null || true
wait "$agent"
