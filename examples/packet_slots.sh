# The same jobs when ready and by time slots: what synchronised clocks buy, and where that breaks.
cat > small.yaml <<'Y'
name: small
hosts: 16
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 4}
Y
cat > rails.yaml <<'Y'
name: rails
hosts: 4
host: 8 x H100
network: rail-optimized NDR
Y
ask() { echo "== $*"; syncline simulate slots "$@"; echo; }
ask small.yaml incast:15:1MB --transport dctcp --buffer 1MB     # no losses, no queue: slots win
ask small.yaml all-pairs:64KiB                                  # short messages: guards cost what queues did not
ask rails.yaml allreduce:4MiB --clock-error 50ns                # a long chain of rounds: every one pays its guard
ask small.yaml incast:15:1MB --background 0.2:storage           # who does not keep to slots breaks them
rm small.yaml rails.yaml
