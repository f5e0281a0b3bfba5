# Four hosts of two racks, listed by a scheduler that knows no racks: every gradient would cross the thin uplinks.
cat > racks.yaml <<'Y'
hosts: 8
host: 8 x H100
network: {topology: leaf-spine, link: 100GbE, oversubscription: "8:1", hosts_per_leaf: 4}
Y
cat > job.yaml <<'Y'
model: llama3-8b
batch: {global: 16, sequence: 2048}
parallel: {tp: 8, pp: 2}
Y
syncline place racks.yaml job.yaml --hosts 'host-[00,04,01,05]' --out placement
echo
cat placement/hostfile
echo
echo "== host-01 has failed; host-02 of the same rack takes its seat, nobody else moves"
syncline place racks.yaml job.yaml --hosts 'host-[00,04,01,05]' --keep placement/placement.json --replace host-01=host-02 | sed -n 1,6p
rm -r racks.yaml job.yaml placement
