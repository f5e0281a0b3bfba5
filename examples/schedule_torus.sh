# An all-reduce on a TPU v4 pod uses every link of the torus, in both directions.
syncline schedule cost torus --cluster tpu-v4-pod --size 1GiB
