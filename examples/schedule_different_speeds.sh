# A ring on rails of 100 and 400 Gb/s finishes in the time the capacities allow; the bound is printed beside.
syncline schedule cost ring --ranks 8 --cluster h100-64-rail --rates 100Gbps,400Gbps --size 1GiB
echo
# One slow rank among fast ones: it owns nothing of the sum, so it sends its own data once and no more.
syncline schedule cost balanced --cluster h100-64-rail --speeds 100Gbps,400Gbps,400Gbps,400Gbps,400Gbps,400Gbps --size 1GiB
