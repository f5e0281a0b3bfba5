# What 1:1 to 4:1 above the leaf switches costs and saves. Ranks placed in order lose nothing; a scheduler that scatters
# them over racks loses what the column "scattered" says. A small model with a small batch feels it most.
cat > small.yaml <<'JOB'
model: llama3-8b
batch: {global: 1024, sequence: 4096}
JOB
syncline plan compare llama3-70b --gpus 512 --fabrics "fat-tree,fat-tree 2:1,fat-tree 3:1,fat-tree 4:1"
echo
syncline plan compare small.yaml --gpus 512 --fabrics "fat-tree,fat-tree 2:1,fat-tree 3:1,fat-tree 4:1"
