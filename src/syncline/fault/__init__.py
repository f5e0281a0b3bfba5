"""One vocabulary of what may go wrong, where and when; labs, simulators and audits translate it."""
