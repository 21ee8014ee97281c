#!/bin/bash
# Source this from a batch script: it starts an agent on each node of the job, which runs until the batch script ends. An
# agent serves only the user that it runs as, so every job starts its own. Its log is JOBNAME-JOBID-agents.log.
#   SWITCHML_CONTROLLER      HOST:PORT of the controller
#   SWITCHML_SWITCH_ADDRESS  IPv4 address of the switch's data plane; the route to it determines each node's data interface
# If the switch distinguishes hosts by port and MAC address, add --switch-port and --mac to switchml-agent in agent.sh.
: "${SWITCHML_CONTROLLER:?HOST:PORT of the controller}"
: "${SWITCHML_SWITCH_ADDRESS:?IPv4 address of the data plane of the switch}"
export SWITCHML_CONTROLLER SWITCHML_SWITCH_ADDRESS
if ((${SLURM_HET_SIZE:-1} > 1)); then
  echo "this is a heterogeneous job, but these scripts serve only its first component; use slurm/site" >&2
  exit 1
fi
export SWITCHML_RUN_DIR=/tmp/switchml-$SLURM_JOB_ID
# Slurm runs a copy of the batch script; the other files are in the directory from which it was submitted.
here=$SLURM_SUBMIT_DIR
agents_log=$here/$SLURM_JOB_NAME-$SLURM_JOB_ID-agents.log

# The agents end when their standard input does, that is, with this script. Signals would not do: srun passes no SIGTERM on.
coproc AGENTS {
  exec srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 \
    --task-epilog="$here/agent-epilog.sh" "$here/agent.sh" 2> "$agents_log"
}
agents=$AGENTS_PID agents_input=${AGENTS[1]} agents_output=${AGENTS[0]}
stop_agents() {
  exec {agents_input}>&-
  wait "$agents" || true
}
trap stop_agents EXIT

for ((node = 0; node < SLURM_NNODES; node++)); do
  read -r -u "$agents_output" line || line=ended  # each agent says whether it is ready
  if [[ $line != ready ]]; then
    echo "the agents of SwitchML did not start; $agents_log:" >&2
    cat "$agents_log" >&2
    exit 1
  fi
done

# sbatch --licenses=switchml_slots:128 asks for a pool of 128 slots, and waits until the switch has as many.
SWITCHML_SLOTS=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%W | sed -n 's/.*switchml_slots:\([0-9]*\).*/\1/p')
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export SWITCHML_SLOTS MASTER_ADDR MASTER_PORT
