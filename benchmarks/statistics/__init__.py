"""Verdicts under simulation: intervals, estimates and alarms, with seeds and intervals of their own."""
