"""Charts of every page: `bars`, `plot` and `lanes`, written by `svg`. Each is a call with data that returns markup."""
