# A log of nccl-tests from two hosts that are slow, held against what their cluster should give, and priced.
syncline bench --read slow.log --cluster h100-64-rail --cost --gpu-hour 2.50
