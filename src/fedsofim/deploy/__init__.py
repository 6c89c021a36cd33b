"""Deployment: the same methods in a federation of machines, each of which keeps its own budget.

At a node: policy (what its operator allows), lines and account (the ledger on disk), noise, execute, secure_sum,
pricing, holding (which requests it has), node. At the coordinator: order (what is to be trained, and how), clients,
job_state, uploads, server, checkpoint. Between them: wire, steps. Afterwards: certificate. Around it: address,
credentials, handout (the folders that `federation init` writes), workers, processes, following, demo. Only flower/
imports Flower.
"""
