# The same all-to-all on full bisection and on uplinks oversubscribed 3:1.
for ratio in 1 3; do
  cat > cluster-$ratio.yaml <<END
name: oversubscribed-$ratio-to-1
hosts: 90
host: {gpu: H100, gpus: 1, scale_up: none}
network: {topology: leaf-spine, link: HDR, switch: QM8700, oversubscription: "$ratio:1"}
END
  syncline simulate alltoall --cluster cluster-$ratio.yaml --algorithm direct --size 256MiB --routing spray | sed -n 1,4p
done
