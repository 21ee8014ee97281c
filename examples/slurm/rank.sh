#!/bin/bash
# One rank of ranks.sbatch, which starts this with the program and its arguments.
trap : TERM USR1 USR2  # the program gets these signals of Slurm as well
RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID "$@"
status=$?
# When a rank has failed, Slurm terminates the others, and the job gets the highest status of all: it must be that rank's.
if ((status == 128 + 15)); then status=1; fi
exit "$status"
