#!/bin/bash
# The same command on every host, as for training:
#   torchrun.sh SHARED_FOLDER NUM_HOSTS MASTER_ADDR
# Only local rank 0 of a host audits it; when all are done, the last line compares them (run it once).
set -euo pipefail
folder=$1 hosts=$2 master=$3
torchrun --nnodes="$hosts" --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint="$master:29500" \
    --no-python syncline audit --exit none --write "$folder"
[ "$(find "$folder" -name '*.json' | wc -l)" -lt "$hosts" ] || syncline audit matrix "$folder"/*.json
