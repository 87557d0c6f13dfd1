"""The ledger: effects of one unit in, one transaction out.

May import state.
"""
