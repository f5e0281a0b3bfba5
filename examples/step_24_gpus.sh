# 70B on 24 GPUs: over one 10 GbE port a host the step is network and nothing else; over 400 Gb/s a GPU it is arithmetic.
cat > slow.yaml <<'YAML'
hosts: 3
host: {model: dgx-h100, nics: 1, link: 10GbE}
network: {topology: fat-tree, link: 10GbE}
YAML
cat > fast.yaml <<'YAML'
hosts: 3
host: dgx-h100
network: fat-tree NDR
YAML
cat > job.yaml <<'YAML'
model: llama3-70b
parallel: {zero: fsdp}
batch: {global: 96, micro: 2, sequence: 4096}
recompute: full
YAML
for cluster in slow fast; do
  echo "== $cluster"
  syncline step $cluster.yaml job.yaml | sed -n 3,13p
done
