# Two jobs cross the same thin uplinks: in phase each waits for the other, in slots neither does.
cat > racks.yaml <<'Y'
hosts: 4
host: 8 x H100
network: {topology: leaf-spine, link: 100GbE, oversubscription: "8:1", hosts_per_leaf: 2}
Y
cat > jobs.yaml <<'Y'
jobs:
  - {name: text, hosts: "0,2", step: {compute: 60ms, exchange: 500MB}}
  - {name: video, hosts: "1,3", step: {compute: 60ms, exchange: 500MB}, arrives: 1h}
Y
syncline share racks.yaml jobs.yaml
rm racks.yaml jobs.yaml
