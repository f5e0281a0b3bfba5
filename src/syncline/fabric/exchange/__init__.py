"""Import and export of fabrics: NCCL topology XML, Slurm topologies, topograph labels, GraphML."""
