# Two jobs and a backup on one leaf-spine, packet by packet: in one class, and with the backup behind.
cat > small.yaml <<'Y'
hosts: 16
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 4}
Y
cat > same.yaml <<'Y'
name: one class
cluster: small.yaml
jobs:
  - {name: pretrain, size: 8MiB, hosts: 0-11, compute: 50us, repeat: 2}
  - {name: finetune, size: 4MiB, hosts: "12-15"}
  - {name: backup, collective: alltoall, algorithm: direct, size: 8MiB}
events:
  - {at: 300us, link: leaf-00 <-> spine-00, which: 0, reroute: 50us}
  - {at: 900us, link: leaf-00 <-> spine-00, which: 0, rate: full}
traffic:
  - {from: "13", to: "2", rate: 100Gbps, start: 0s, for: 500us}
Y
syncline scenario same.yaml --level packet --transport dctcp
echo
echo "== the backup behind the jobs"
sed 's/name: one class/name: two classes/; s/algorithm: direct,/algorithm: direct, priority: 1,/' same.yaml > behind.yaml
syncline scenario behind.yaml --level packet --transport dctcp
echo
echo "== and links that lose one packet in ten thousand, with storage beside"
syncline scenario behind.yaml --level packet --transport dctcp --loss 0.0001 --background 0.1:storage
rm small.yaml same.yaml behind.yaml
