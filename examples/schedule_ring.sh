# The rounds of a ring, its cost counted and its law beside; then to MSCCL XML and back, proved on the way.
syncline schedule show ring --ranks 4
echo
syncline schedule export ring ring.xml --ranks 4
syncline schedule convert ring.xml ring.json
syncline schedule verify ring.json
