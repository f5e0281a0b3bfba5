# Own or rent? One cluster, then what changes the answer: use, time, a commitment, the price of money.
echo "== 64 hosts of 8 H100: everything on one screen"
syncline cost h100-64-rail

answer() {
    echo
    echo "== $1"
    shift
    syncline cost h100-64-rail "$@" | sed -n '3,/^$/p' | sed '/^$/d'
}

answer "used a third of the time" --utilisation 0.33
answer "kept for two years only" --years 2
answer "money at 10 % a year" --financing 0.10
answer "against AWS, committed at 60 % off" --cloud aws --discount 0.6
answer "against AWS, used a tenth of the time" --cloud aws --utilisation 0.1
