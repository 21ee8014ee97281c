#!/bin/bash
# Source this from a batch script: it starts an agent on each node of the job, which runs until the batch script ends. An
# agent serves only the user that it runs as, so every job starts its own.
#   SWITCHML_CONTROLLER      HOST:PORT of the controller
#   SWITCHML_SWITCH_ADDRESS  IPv4 address of the switch's data plane; the route to it determines each node's data interface
# If the switch distinguishes hosts by port and MAC address, add --switch-port and --mac to switchml-agent in agent.sh.
: "${SWITCHML_CONTROLLER:?HOST:PORT of the controller}"
: "${SWITCHML_SWITCH_ADDRESS:?IPv4 address of the data plane of the switch}"
export SWITCHML_CONTROLLER SWITCHML_SWITCH_ADDRESS
export SWITCHML_RUN_DIR=/tmp/switchml-$SLURM_JOB_ID
# Slurm runs a copy of the batch script; the other files are in the directory from which it was submitted.
here=$SLURM_SUBMIT_DIR

srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 "$here/agent.sh" &
agents=$!
stop_agents() {
  kill "$agents" 2> /dev/null || true
  wait "$agents" || true
}
trap stop_agents EXIT

# shellcheck disable=SC2016  # the shells on the nodes expand it
srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 \
  timeout 60 sh -c 'until test -e "$SWITCHML_RUN_DIR/agent.ready"; do sleep 0.2; done'

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
