# What an all-reduce takes on 64 hosts of 8 H100, size by size, and which algorithm wins where.
syncline simulate allreduce --cluster h100-64-rail --size 64MiB..1GiB
echo
syncline simulate compare --cluster h100-64-rail --ranks 64 --size 16KiB..1GiB
