# One ring over 32 hosts. Packed, it changes rail at every host, so 32 flows meet on the spines and ECMP collides;
# spraying, adaptive routing and static tables remove the collisions, and an order that stays on its rail never meets them.
syncline simulate allreduce --cluster h100-64-rail --ranks 256 --algorithm ring --size 1GiB --routing ecmp --seeds 8
for routing in spray adaptive static; do
  syncline simulate allreduce --cluster h100-64-rail --ranks 256 --algorithm ring --size 1GiB --routing $routing | sed -n 1,4p
done
syncline simulate allreduce --cluster h100-64-rail --ranks 256 --algorithm ring --size 1GiB --routing ecmp --placement rail-aware | sed -n 1,4p
