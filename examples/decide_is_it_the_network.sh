# 13B on 32 A100 hosts with 100 GbE: is the network the problem? First as the file says, then by NICs a host.
cat > cluster.yaml <<'CLUSTER'
hosts: 32
host: 8 x A100
network: leaf-spine 100GbE
CLUSTER
cat > job.yaml <<'JOB'
model: llama2-13b
batch: {global: 1024, sequence: 4096}
tokens: 1T
JOB
syncline plan cluster.yaml job.yaml
syncline plan compare cluster.yaml job.yaml --set host.nics=1,2,4,8
echo "== one NIC a host"
sed -i 's/^host: .*/host: {gpu: A100, gpus: 8, nics: 1}/' cluster.yaml
syncline plan cluster.yaml job.yaml | grep -A 3 "do first"
