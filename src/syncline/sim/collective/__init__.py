"""The one price of a collective: what the job's library takes, the best known schedule beside it, and the bound."""
