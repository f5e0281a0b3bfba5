# Two sites with 10 Gb/s and 80 ms between them: is a job over both worth it, and what makes it so?
cat > cluster.yaml <<'CLUSTER'
sites:
  - {name: east, hosts: 16, host: dgx-h100, network: rail-optimized NDR}
  - {name: west, hosts: 16, host: dgx-h100, network: rail-optimized NDR}
wan: {rate: 10Gbps, latency: 80ms}
CLUSTER
cat > job.yaml <<'JOB'
model: llama3-8b
batch: {global: 1024, sequence: 8192}
tokens: 2T
JOB
syncline plan cluster.yaml job.yaml
