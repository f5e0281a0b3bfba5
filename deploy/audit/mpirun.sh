#!/bin/bash
# mpirun.sh HOSTFILE SHARED_FOLDER
set -euo pipefail
hostfile=$1 folder=$2
mpirun --hostfile "$hostfile" --map-by ppr:1:node syncline audit --exit none --write "$folder" >/dev/null
syncline audit matrix "$folder"/*.json
