# What is wrong, where, the rule and the next step; exit status 2.
printf 'hosts: 4\nhost: dgx-h100\nnetwork:\n  topology: leaf-spine\n  link: NDR\n  spinez: 2\n' > typo.yaml
syncline fabric show typo.yaml 2>&1 || echo "exit status $?"
echo
printf 'hosts: 4\nhost: dgx-h1000\nnetwork: fat-tree NDR\n' > part.yaml
syncline fabric show part.yaml 2>&1 || echo "exit status $?"
echo
printf 'hosts: 1000000000\nhost: dgx-h100\nnetwork: fat-tree NDR\n' > large.yaml
syncline fabric show large.yaml 2>&1 || echo "exit status $?"
