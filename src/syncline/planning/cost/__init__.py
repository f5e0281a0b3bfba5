"""What a cluster and a job cost: owned or rented, per step, token and run, with failures and with sources."""
