"""All that imports Flower, and nothing else of the room imports this.

messages: requests and replies as Flower's records. post: sending, waiting, and noticing what was lost. meeting: finding
the nodes of a job. client_app, worker, fleet, node_loop: a node. strategy, server_app: the coordinator's loop. app/:
what `fedsofim serve` submits; it holds no code of its own.
"""
