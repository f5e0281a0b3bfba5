"""Place: which GPU of this allocation each rank of a job runs on, so that its step is shortest.

    answer = syncline.place("cluster.yaml", "job.yaml", hosts="gpu[003-011,042,077]")
    answer.step_time_s, answer.gain          # against the order the scheduler gave

`allocation.py` reads what a scheduler gave, `seats.py` cuts it into units that move as one, `judge.py` executes the
step on an order of them at flow level, `traffic.py` says quickly which orders are worth that, `search.py` looks for the
best, `remap.py` for the best near an order that runs already, `files.py` writes it down for launchers.
"""
