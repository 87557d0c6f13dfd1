"""The improvement loop under simulation: verdicts of the gate on candidates of known truth."""
