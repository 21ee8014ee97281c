#!/bin/bash
# Prolog of slurm.conf: root runs this on each node of a job before its first process. It starts an agent as the job's
# user, and leaves for task-prolog.sh what the tasks need. If there can be no agent, the job starts all the same.
# The file agent.env in the same directory, which only root may write, has the settings:
#   SWITCHML_CONTROLLER      HOST:PORT of the controller
#   SWITCHML_SWITCH_ADDRESS  IPv4 address of the switch's data plane; the route to it determines the node's data interface
#   SWITCHML_AGENT_OPTIONS   more options of switchml-agent
#   PATH                     programs, if switchml-agent is not in /opt/switchml/venv/bin
# Whatever a user can write is written as this user. Root writes in /run/switchml-slurm, where no one else can.
START_SECONDS=30  # to listen; the agent also listens while the controller is away
PATH=/opt/switchml/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
here=$(dirname "$0")
"$here/epilog.sh"  # removes what an earlier run of this job left if the host crashed
set -a
# shellcheck source=/dev/null
. "$here/agent.env"
set +a

job=/run/switchml-slurm/$SLURM_JOB_ID
mkdir -p "$job" || exit 0
# The user's directory is a separate file system, so that it cannot fill /run.
mount -t tmpfs -o "size=4m,nr_inodes=100,mode=0700,uid=$SLURM_JOB_UID,nosuid,nodev,noexec" switchml "$job" || exit 0
echo "export SWITCHML_AGENT=$job/agent.sock" > "$job.env"
# With sbatch --licenses=switchml_slots:128 the job's pool has 128 slots.
slots=$(timeout 10 squeue --noheader --jobs="$SLURM_JOB_ID" --format=%W | sed -n 's/.*switchml_slots:\([0-9]*\).*/\1/p')
if [ -n "$slots" ]; then echo "export SWITCHML_SLOTS=$slots" >> "$job.env"; fi

address=$(ip -4 -oneline route get "$SWITCHML_SWITCH_ADDRESS" | sed -n 's/.* src \([0-9.]*\).*/\1/p')
# shellcheck disable=SC2016,SC2086  # the user's shell expands $0 and $@; the options are several words
setsid setpriv --reuid="$SLURM_JOB_UID" --regid="$(id -g "$SLURM_JOB_UID")" --clear-groups --no-new-privs \
  --inh-caps=-all --bounding-set=-all \
  sh -c 'umask 077; exec >"$0/agent.log" 2>&1; exec switchml-agent "$@"' "$job" \
  --name "$SLURMD_NODENAME-$SLURM_JOB_ID" --address "$address" --socket "$job/agent.sock" $SWITCHML_AGENT_OPTIONS \
  < /dev/null > /dev/null 2>&1 &
agent=$!
echo "$agent" > "$job.pid"
until [ -S "$job/agent.sock" ] || ! kill -0 "$agent" 2> /dev/null || [ "$SECONDS" -gt "$START_SECONDS" ]; do
  sleep 0.1
done
exit 0
