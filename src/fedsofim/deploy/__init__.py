"""Deployment: the same methods in a federation of machines, each of which keeps its own budget.

At a node: policy (what its operator allows), sane (what a message may hold), lines, chain, witness, ledger_file and
account (the ledger on disk), noise, execute, secure_sum, pieces, parcels, pricing, holding (which requests it has),
node, survivors (opening sums without everybody), readiness. At the coordinator: order (what is to be trained, and how),
clients, job_state, presence (rounds without everybody), uploads, unmasking, server, checkpoint, registration. Between
them: wire, steps. Afterwards: signatures, certificate. Around it: address, credentials, handout (the folders that
`federation init` writes), processes, following, demo. Only flower/ imports Flower.
"""
