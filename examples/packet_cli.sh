# Packets from the command line: what a lossy link, a small buffer, short frames, other traffic and a failed cable cost.
cat > small.yaml <<'Y'
hosts: 16
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 4}
Y
ask() { echo "== $*"; syncline simulate "$@" --cluster small.yaml | sed '/^  queue/d; /^packet level/,$d'; echo; }
ask permutation --size 4MB --transport roce
ask permutation --size 4MB --transport roce --loss 0.0001
ask permutation --size 4MB --transport roce --loss 0.0001 --recovery selective
ask permutation --size 4MB --transport roce --loss 'host-03/nic-0=0.001'
ask permutation --size 4MB --transport roce --mtu 1500
ask incast --senders 12 --size 1MB --transport dctcp --buffer 64MiB
ask incast --senders 12 --size 1MB --transport dctcp --buffer 1us
ask permutation --size 4MB --transport srd --fail 'leaf-00<->spine-00#1@20us..1ms' --reroute 50us
ask allreduce --size 8MiB --algorithm ring --level packet
ask allreduce --size 8MiB --algorithm ring --level packet --background 0.3:storage
rm small.yaml
