"""Choose: what a cluster and a job cost, and what to change first."""
