# How many endpoints a two-tier fat-tree of 64-port switches joins, and how many switches 1,024 GPUs really need
# (a published article says 1,536).
syncline fabric show fat-tree-64port-2tier
echo
syncline fabric show fat-tree-1024
