# The same 48 hosts at 1:1, 2:1, 3:1 and 4:1: fewer switches, less bisection.
for ratio in 1:1 2:1 3:1 4:1; do
  printf 'name: %s\nhosts: 48\nhost: dgx-h100\nnetwork: leaf-spine NDR %s\n' "leaf-spine $ratio" "$ratio" > cluster.yaml
  syncline fabric show cluster.yaml | sed -n '1p;/^  network/p;/^  bandwidth/p;/^  price/p'
  echo
done
