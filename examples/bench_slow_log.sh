# A log of nccl-tests from two hosts that are slow, held against what their cluster should give, and priced.
cat > slow.log <<'LOG'
# nThread 1 nGpus 1 minBytes 67108864 maxBytes 4294967296 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
# Using devices, all_reduce_perf
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    67108864      16777216     float     sum      -1   1426.0   47.06   88.24      0   1431.0   46.90   87.93      0
   268435456      67108864     float     sum      -1   5186.0   51.76   97.05      0   5190.0   51.72   96.98      0
  1073741824     268435456     float     sum      -1    19865   54.05  101.35      0    19870   54.04  101.32      0
  4294967296    1073741824     float     sum      -1    78546   54.68  102.53      0    78551   54.68  102.52      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 97.2
LOG
syncline bench --read slow.log --cluster h100-64-rail --cost --gpu-hour 2.50
