"""Versions that are trained elsewhere, and jobs that wait for one."""
