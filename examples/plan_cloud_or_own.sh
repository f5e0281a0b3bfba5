# The same plan on GPUs that are owned, and rented from two clouds.
for basis in own nebius aws; do
  option=$([ $basis = own ] || echo "--cloud $basis")
  printf "%-8s" $basis
  syncline plan h100-64-rail llama3-70b $option | grep -E "^  (step|GPU-hour)" | tr -s ' \n' ' '
  echo
done
echo
syncline cost h100-64-rail | grep -E "answer|break"
