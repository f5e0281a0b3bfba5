# The default cluster: what it is made of, how fast, how much. Then which links a transfer crosses.
syncline fabric show
echo
syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3
echo
echo "the same, changing rail over NVLink inside the host:"
syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3 --cross-rail nvlink
