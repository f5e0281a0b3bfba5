# Levels send eight times less across hosts than a ring that ignores hosts, counted from proved schedules.
syncline schedule cost ring --cluster h100-64-rail --size 1GiB --placement spread
echo
syncline schedule cost hierarchical --cluster h100-64-rail --size 1GiB
echo
# Every rank of a ring sends 2(n-1)/n of the buffer; a parameter server moves 2N times the gradient of one worker.
syncline schedule show parameter-server --ranks 6
