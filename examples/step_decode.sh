# Tensor-parallel decode of 70B: a second host halves the weights each GPU reads, but every layer's two all-reduces now
# cross the network, and a fast link's latency matters more than its rate.
cat > ethernet.yaml <<'YAML'
hosts: 2
host: {model: dgx-h100, nics: 1, link: 100GbE}
network: {topology: fat-tree, link: 100GbE}
software: {plugin: none}
YAML
for tp in 4 8 16; do
  cat > decode.yaml <<YAML
kind: decode
model: llama3-70b
parallel: {tp: $tp}
batch: {global: 8}
context: 4096
YAML
  syncline step h100-64-rail decode.yaml | sed -n '1p;3p;5p;7,10p'
  echo
done
echo "== 16 over 100 GbE and TCP"
syncline step ethernet.yaml decode.yaml | sed -n '1p;3p;5p;7,10p'
