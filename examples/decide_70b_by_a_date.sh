# 70B on 1,024 H100 for 15T tokens: when does it end, what does it cost, do deadline and budget hold, and if not?
cat > cluster.yaml <<'CLUSTER'
hosts: 128
host: dgx-h100
network: rail-optimized NDR
CLUSTER
cat > job.yaml <<'JOB'
model: llama3-70b
batch: {global: 2048, sequence: 8192}
tokens: 15T
start: 2027-01-15
deadline: 2027-06-30
budget: $30M
JOB
syncline plan cluster.yaml job.yaml
sed -i 's/^deadline.*/deadline: 60 days/' job.yaml
echo "== in 60 days"
syncline plan cluster.yaml job.yaml --more | grep -A 6 -E "^  (run|options)"
