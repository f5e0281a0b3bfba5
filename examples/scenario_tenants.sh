# Three jobs on the same eight NICs: without a guarantee each has a third, with one gold has half.
cat > shared.yaml <<'Y'
cluster: h100-64-rail
jobs:
  - {name: pretrain, tenant: gold, size: 1GiB, hosts: 0-7, ranks: 8, placement: spread}
  - {name: crowd-1, size: 1GiB, hosts: 0-7, ranks: 8, placement: spread}
  - {name: crowd-2, size: 1GiB, hosts: 0-7, ranks: 8, placement: spread}
Y
syncline scenario shared.yaml
echo
echo "== gold is guaranteed half of every link"
{ cat shared.yaml; echo "tenants: {gold: 0.5}"; } > gold.yaml
syncline scenario gold.yaml
echo
echo "== and a NIC fails after 10 ms for 20 ms; its traffic moves away after 1 ms"
{ cat gold.yaml; echo "events: [{at: 10ms, device: host-00/nic-0, reroute: 1ms}, {at: 30ms, device: host-00/nic-0, rate: full}]"; } > failed.yaml
syncline scenario failed.yaml
rm shared.yaml gold.yaml failed.yaml
