# What DistributedDataParallel sends, hides and holds, from a script that was run once on a laptop (preview/ddp.py, kept
# with `--keep preview/captured`) and is priced here on a described cluster. Without --captured the script runs again.
command="torchrun --nnodes 2 --nproc-per-node 8 preview/ddp.py"
syncline preview h100-64-rail --captured preview/captured -- $command
echo
syncline preview h100-64-rail --captured preview/captured --what-if gpu=A100-SXM4-80GB --what-if codec=int8 -- $command |
    grep -A2 "what if"
