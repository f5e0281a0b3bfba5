"""What profilers recorded of one rank: device activities, host calls and collectives in columns, whoever wrote it."""
