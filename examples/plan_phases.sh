# A 70B assistant from the first token to the last: four phases on one cluster, each with its own split and network needs, one bill.
cat > cluster.yaml <<'CLUSTER'
hosts: 128
host: dgx-h100
network: rail-optimized NDR
CLUSTER
cat > job.yaml <<'JOB'
name: assistant-70b
model: llama3-70b
start: 2027-01-15
deadline: 300 days
budget: $60M
phases:
  - {name: pre-training, tokens: 15T, batch: {global: 2048, sequence: 8192}}
  - {name: long context, tokens: 100B, batch: {global: 128, sequence: 131072}}
  - {name: instructions, tokens: 5B, frozen: true, gpus: 64, batch: {global: 128, sequence: 8192}}
  - name: reinforcement
    steps: 500
    rollout: {prompts: 512, answers: 8, prompt: 1000, answer: {mean: 4000, p99: 16000}}
JOB
syncline plan cluster.yaml job.yaml
