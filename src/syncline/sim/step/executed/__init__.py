"""Steps and traces executed on the flow engine: every collective on its links, with contention."""
