# What a run costs: steps, tokens, failures, what a budget buys and when a faster network has paid for itself.
syncline cost eos --step-time 4.2s --tokens-per-step 16M --steps 500k --budget 5M \
    --upgrade-price 3M --upgrade-step-time 3.9s --cloud aws

echo
echo "== the same with the failure rate of another cluster and a checkpoint every four hours"
syncline cost eos --reliability rsc-1 --set checkpoint_interval_s=14400 --more | grep -A 4 "failures "
