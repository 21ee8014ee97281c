#!/bin/bash
# Slurm runs this as the job's user when agent.sh has ended in any way.
rm -rf "$SWITCHML_RUN_DIR"
