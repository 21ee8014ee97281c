#!/bin/bash
# To be sourced by a batch script: an agent on each node of the job, until the batch script ends. An agent serves the user
# that it runs as, so every job brings its own.
#   SWITCHML_CONTROLLER      HOST:PORT of the controller
#   SWITCHML_SWITCH_ADDRESS  IPv4 address of the switch's data plane; the way there tells a node its data interface
# On a switch that tells hosts apart by port and MAC address, agent.sh gives them to switchml-agent as well.
: "${SWITCHML_CONTROLLER:?HOST:PORT of the controller}"
: "${SWITCHML_SWITCH_ADDRESS:?IPv4 address of the data plane of the switch}"
export SWITCHML_CONTROLLER SWITCHML_SWITCH_ADDRESS
export SWITCHML_RUN_DIR=/tmp/switchml-$SLURM_JOB_ID
# Slurm runs a copy of the batch script; its neighbours are where it was submitted.
here=$SLURM_SUBMIT_DIR

srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 "$here/agent.sh" &
agents=$!
stop_agents() {
  kill "$agents" 2> /dev/null || true
  wait "$agents" || true
}
trap stop_agents EXIT

# shellcheck disable=SC2016  # the nodes expand it
srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 \
  timeout 60 sh -c 'until test -e "$SWITCHML_RUN_DIR/agent.ready"; do sleep 0.2; done'

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
