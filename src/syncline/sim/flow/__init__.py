"""The flow level: messages that share links max-min fairly, and what that makes of a program."""
