# A 70B assistant for 20 requests a second: how many GPUs, how long do users wait, what does a million tokens cost?
cat > cluster.yaml <<'CLUSTER'
hosts: 16
host: dgx-h100
network: rail-optimized NDR
CLUSTER
cat > job.yaml <<'JOB'
kind: serve
model: llama3-70b
precision: fp8
load: {rate: 20, prompt: {mean: 1500, p99: 8000}, answer: 300}
slo: {first_token: 2s, between_tokens: 80ms}
JOB
syncline plan cluster.yaml job.yaml
