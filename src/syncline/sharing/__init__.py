"""Share: several jobs on one cluster, who gets which hosts, when their bursts should come, and what each loses.

    answer = syncline.share("cluster.yaml", "jobs.yaml")
    answer.epochs[0].jobs[0].slowdown            # against the same job with the cluster to itself

`jobs_file.py` is what a person writes, `hosts.py` who gets what, `pattern.py` one step of a job as tasks on links,
`together.py` the steps of all jobs on the flow engine, `interleave.py` offsets and classes, `epochs.py` what is there
when: arrivals, departures, failures.
"""
