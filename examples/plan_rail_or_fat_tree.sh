# Rail-optimized, fat-tree and rail-only for the same money: what a cheaper network saves buys hosts.
syncline plan compare llama3-70b --budget 22M --fabrics "rail-optimized,fat-tree,rail-only"
