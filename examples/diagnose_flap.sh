# A job died of a time-out. The kernel log of another host says why.
cat > job.log <<'L'
[2026-05-01 10:00:00] n1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
[2026-05-01 13:09:00] iteration      100/    5000 | lm loss: 2.013
[2026-05-01 13:10:32] n1:1:9 [0] transport/net_ib.cc:1299 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)
[rank0]:[E501 13:20:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.
L
cat > kern-n2.log <<'L'
May  1 13:09:34 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link down
May  1 13:09:39 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link up
May  1 13:09:50 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link down
L
gzip -n kern-n2.log
syncline diagnose job.log kern-n2.log.gz
echo
echo "== what to set on such a cluster, and whether a log shows that it took"
syncline nccl llama3-24k-roce --ranks 16 > settings.txt
head -n 8 settings.txt
cat > nccl.log <<'L'
n1:1:2 [0] NCCL INFO comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1c000 - Init START
n2:1:2 [0] NCCL INFO comm 0x55 rank 8 nranks 16 cudaDev 0 nvmlDev 0 busId 1c000 - Init START
n1:1:2 [0] NCCL INFO Using network IB
n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0
n1:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0
L
syncline nccl check nccl.log --cluster llama3-24k-roce
rm job.log kern-n2.log.gz nccl.log settings.txt
