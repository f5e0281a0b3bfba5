"""Preview: a training script run unmodified as one rank of its world, on a CPU, and priced on a described cluster.

`launch.py` reads the launcher's command line, `child.py` runs the script in a process of its own (`capture/`, the only
part that imports torch) and reads back a `Capture`; `graph.py` makes a step graph of it, `price.py` its kernels' times,
`execute.py` runs it on the fabric, `holders.py` says what fills the memory, `what_if.py` changes one thing.
"""
