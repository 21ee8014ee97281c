#!/bin/bash
# TaskProlog of slurm.conf: the job's user runs this before each task, which gets the variables that it prints. A program for
# torch.distributed, and SwitchML, need no others.
PATH=/usr/local/bin:/usr/bin:/bin:$PATH

# Each component of a heterogeneous job has a number: SLURM_JOB_ID_PACK_GROUP_1 or SLURM_JOB_ID_HET_GROUP_1.
for job in SLURM_JOB_ID "${!SLURM_JOB_ID_@}"; do
  directory=/run/switchml-slurm/${!job}
  if [ -r "$directory.env" ]; then
    cat "$directory.env"
    if [ ! -S "$directory/agent.sock" ] && [ "$SLURM_LOCALID" = 0 ]; then
      echo "print SwitchML has no agent on $SLURMD_NODENAME: $(tail -n 1 "$directory/agent.log" 2>&1)"
    fi
    break
  fi
done

if [ -z "$SLURM_STEP_NODELIST" ]; then exit 0; fi  # the batch script is not a rank
nodes=$SLURM_STEP_NODELIST
for first in "${!SLURM_JOB_NODELIST_@}"; do nodes=${!first}; break; done  # that of the first component has rank 0
echo "export RANK=$SLURM_PROCID"
echo "export WORLD_SIZE=$SLURM_NTASKS"
echo "export LOCAL_RANK=$SLURM_LOCALID"
echo "export MASTER_ADDR=$(scontrol show hostnames "$nodes" | head -n 1)"
# Steps of a job may run at the same time.
echo "export MASTER_PORT=$((20000 + (SLURM_JOB_ID + 7919 * SLURM_STEP_ID) % 10000))"
