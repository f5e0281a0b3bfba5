# Rail-optimized, fat-tree and rail-only at the same number of GPUs. Both full fabrics cost the same; rings on rails never
# meet, on a fat-tree ECMP makes them collide (hashed). For a budget ask `syncline design`.
cat > small.yaml <<'JOB'
model: llama3-8b
batch: {global: 512, sequence: 4096}
JOB
syncline plan compare small.yaml --gpus 512 --fabrics "rail-optimized,fat-tree,rail-only"
