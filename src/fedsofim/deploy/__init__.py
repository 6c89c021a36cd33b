"""Deployment on Flower: the same methods in a federation of machines, each of which keeps its own budget.

Without Flower: policy.py, account.py (the ledger on disk), noise.py, execute.py, wire.py, node.py, server.py,
certificate.py. With it: messages.py, client_app.py, server_app.py, strategy.py, pinned.py. Around it:
credentials.py, federation.py, processes.py and the command line.
"""
