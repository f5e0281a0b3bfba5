"""One vocabulary of what may go wrong, where and when; labs, simulators, audits and drills translate it."""
