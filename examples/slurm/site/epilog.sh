#!/bin/bash
# Epilog of slurm.conf: root runs this on each node of a job after its last process. It ends the agent that prolog.sh started,
# and removes its files.
STOP_SECONDS=20
PATH=/usr/sbin:/usr/bin:/sbin:/bin
job=/run/switchml-slurm/$SLURM_JOB_ID
agent=$(cat "$job.pid" 2> /dev/null)

# If the agent has ended, another process may have its number. So the signal is sent as the job's user, who cannot reach
# other users' processes, and only to a process that was started with this job's socket.
signal() {
  grep -qzxF -- "$job/agent.sock" "/proc/$agent/cmdline" 2> /dev/null &&
    setpriv --reuid="$SLURM_JOB_UID" --clear-groups kill "$1" "$agent" 2> /dev/null
}
if [ -n "$agent" ]; then
  signal -TERM
  while signal -0 && [ "$SECONDS" -le "$STOP_SECONDS" ]; do sleep 0.1; done
  signal -KILL
fi
# Root removes nothing that the user has created: all of it was in this file system.
if mountpoint --quiet "$job"; then umount --lazy "$job"; fi
if [ -d "$job" ]; then rmdir "$job"; fi
rm -f "$job.pid" "$job.env"
exit 0
