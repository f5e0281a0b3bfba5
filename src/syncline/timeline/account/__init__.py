"""Where a step's time goes: one type for steps that were predicted, executed, previewed, watched or measured."""

from syncline.timeline.account.account import Account, AccountLine, Removal, StepCause, account_of, reported_account
from syncline.timeline.account.difference import AccountDifference, LineDifference, subtract

__all__ = [
    "Account",
    "AccountDifference",
    "AccountLine",
    "LineDifference",
    "Removal",
    "StepCause",
    "account_of",
    "reported_account",
    "subtract",
]
