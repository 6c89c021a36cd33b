"""All that imports Flower, and nothing else of the room imports this.

messages: requests and replies as Flower's records. edge: whatever arrives, parsed once into checked values. post:
sending, waiting, and noticing what was lost. meeting: finding the nodes of a job. client_app, worker, pipe, fleet,
node_loop: a node. strategy, server_app: the coordinator's loop. front: what nodes reach of a coordinator. flower_api:
all of Flower that is not its public interface. app/: what `fedsofim serve` submits; it holds no code of its own.
"""
