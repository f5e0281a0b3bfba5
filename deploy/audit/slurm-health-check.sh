#!/bin/bash
# HealthCheckProgram of slurm.conf: drains this host when the audit is critical, or when it cannot be made. Slurm kills it after 60 s.
#   HealthCheckProgram=/etc/slurm/slurm-health-check.sh
#   HealthCheckInterval=600
# The cluster file is SYNCLINE_CLUSTER or /etc/syncline/cluster.yaml. A check that cannot run says nothing good of the host, so a
# missing file, a missing syncline or an error drains it too (fail closed); --unknown-ok keeps single unreadable facts from doing so.
cluster="${SYNCLINE_CLUSTER:-/etc/syncline/cluster.yaml}"
first=$(syncline audit --unknown-ok --cluster "$cluster" 2>&1 | grep -v '^[[:space:]]*$' | head -n 1)
first=${first%% | *} # without the performance data of a Nagios check
case "${first%%:*}" in
OK | WARNING)
    exit 0
    ;;
CRITICAL)
    reason="syncline: ${first:10:100}"
    ;;
*)
    reason="syncline: the health check cannot run: ${first:0:80}"
    ;;
esac
echo "$reason" >&2
scontrol update "NodeName=$(hostname -s)" State=DRAIN "Reason=$reason"
exit 1
