# What cannot be: a model that fits nowhere, a fixed choice that does not divide, a negative price, an empty budget.
cat > large.yaml <<'JOB'
model: gpt3-175b
batch: {global: 64, sequence: 2048}
gpus: 8
JOB
syncline plan h100-64-rail large.yaml 2>&1 || true
echo
syncline plan h100-64-rail llama3-70b --fix tp=3 2>&1 || true
echo
syncline plan h100-64-rail llama3-70b --set host_price_usd=-1 2>&1 || true
echo
syncline plan compare llama3-70b 2>&1 || true
