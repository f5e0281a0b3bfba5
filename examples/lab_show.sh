# What a lab of a described cluster is made of: nothing is built.
syncline lab show lab-leaf-spine.yaml
echo
syncline lab show dgx-h100-superpod --hosts 2 | sed -n 1,6p
