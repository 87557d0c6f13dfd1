"""Alarms: watched streams and how far each is from an alarm.

May import service.
"""
