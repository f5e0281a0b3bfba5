#!/bin/bash
# HealthCheckProgram of slurm.conf: drains this host when the audit is critical. Slurm kills it after 60 s.
#   HealthCheckProgram=/etc/slurm/slurm-health-check.sh
#   HealthCheckInterval=600
first=$(syncline audit --unknown-ok --cluster "${SYNCLINE_CLUSTER:-/etc/syncline/cluster.yaml}" 2>&1 | head -n 1)
if [ "${first%%:*}" = CRITICAL ]; then
    scontrol update "NodeName=$(hostname -s)" State=DRAIN "Reason=syncline: ${first:10:100}"
fi
exit "$([ "${first%%:*}" = CRITICAL ] && echo 1 || echo 0)"
