# The default job on the default cluster: answer, limit, and the three changes that are worth most.
syncline plan h100-64-rail llama3-70b
