# 512 B200, 1,024 H100 or 16 NVL72 for a DeepSeek-V3-like model: owned, and the H100 also rented.
cat > b200.yaml <<'CLUSTER'
hosts: 64
host: dgx-b200
network: rail-optimized NDR
CLUSTER
cat > h100.yaml <<'CLUSTER'
hosts: 128
host: dgx-h100
network: rail-optimized NDR
CLUSTER
cat > nvl72.yaml <<'CLUSTER'
hosts: 288
host: gb200-nvl72
network: rail-optimized NDR
CLUSTER
cat > job.yaml <<'JOB'
model: deepseek-v3
batch: {global: 4096, sequence: 4096}
precision: fp8
tokens: 14.8T
JOB
syncline plan compare b200.yaml h100.yaml h100.yaml@rent nvl72.yaml job.yaml
syncline cost nvl72.yaml --more | tr -s " \n" " " | grep -o "16 racks[^$]*45 kW"
