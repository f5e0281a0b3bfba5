# Accumulating gradients over 8 micro-batches synchronises once instead of eight times: 87.5 % less traffic per sample.
cat > cluster.yaml <<'YAML'
hosts: 16
host: {model: dgx-h100, nics: 1, link: 100GbE}
network: {topology: fat-tree, link: 100GbE}
YAML
for batch in 128 1024; do
  cat > job.yaml <<YAML
model: llama3-8b
parallel: {zero: 1}
batch: {global: $batch, micro: 1, sequence: 4096}
recompute: full
YAML
  echo "== global batch $batch, $((batch / 128)) micro-batches"
  syncline step volumes job.yaml --gpus 128 | sed -n 3p
  syncline step cluster.yaml job.yaml | sed -n '3,4p;9,14p'
done
