# 70B parameters at 100 Gb/s: 140 GB of bf16 gradients take over 11 s to send once, and an all-reduce over 1,000 ranks
# sends 282 GB (262.6 GiB) from each. Sharing the model over the 8 GPUs of a host leaves an eighth of that to each port.
cat > cluster.yaml <<'YAML'
hosts: 64
host: {model: dgx-h100, link: 100GbE}
network: {topology: fat-tree, link: 100GbE}
YAML
cat > replicas.yaml <<'YAML'
model: llama3-70b
parallel: {dp: 1000, zero: none}
batch: {global: 1000, sequence: 4096}
YAML
cat > tensor.yaml <<'YAML'
model: llama3-70b
parallel: {tp: 8, zero: 1}
batch: {global: 256, micro: 1, sequence: 4096}
recompute: full
YAML
syncline step volumes replicas.yaml
echo
syncline step cluster.yaml tensor.yaml
