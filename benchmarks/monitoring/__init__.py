"""Monitoring: profiles, drift, series and alarms over time, against peers and floors of the same run."""
