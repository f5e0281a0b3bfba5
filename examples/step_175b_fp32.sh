# 175B parameters in fp32 are 700 GB of gradients a step, however many GPUs share the work: a ring all-reduce sends nearly
# twice that (1.4 TB, 1.27 TiB) from each replica. In one piece they fit no GPU; sharded over 1,024 they do.
cat > whole.yaml <<'YAML'
model: gpt3-175b
precision: fp32
parallel: {zero: none}
batch: {global: 1024, sequence: 2048}
YAML
for gpus in 8 64 1024; do syncline step volumes whole.yaml --gpus $gpus | sed -n '1p;3p'; done
cat > sharded.yaml <<'YAML'
model: gpt3-175b
precision: tf32
gradient_bytes: 4
parallel: {tp: 8, pp: 8, zero: 1}
batch: {global: 1024, micro: 1, sequence: 2048}
recompute: full
YAML
echo
syncline step fat-tree-1024 sharded.yaml
