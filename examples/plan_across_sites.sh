# One job over two sites joined by 100 Gb/s: gradients exchanged every step, and every 100 steps (DiLoCo).
cat > sites.yaml <<'CLUSTER'
name: two-sites
sites:
  - {name: east, hosts: 32, host: dgx-h100, network: rail-optimized NDR}
  - {name: west, hosts: 32, host: dgx-h100, network: rail-optimized NDR}
wan: {rate: 100Gbps, latency: 30ms}
CLUSTER
cat > every.yaml <<'JOB'
model: llama3-8b
batch: {global: 1024, sequence: 8192}
JOB
cat > periodic.yaml <<'JOB'
model: llama3-8b
batch: {global: 1024, sequence: 8192}
sync: {method: diloco, every: 100}
JOB
for job in every periodic; do
  echo "== $job"
  syncline plan sites.yaml $job.yaml --more | grep -E "^  (step|layout|limit|time) " | head -4
done
