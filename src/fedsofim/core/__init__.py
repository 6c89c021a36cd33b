"""What may leave a client and what it costs. Read round.py first, then door.py, then audit.py.

gaussian, budget, accounting: prices. mechanisms: noise over the rounds. queries: what is summed. models, records: what
is trained on what. release: the one primitive that turns records into something that may leave. door: how a method
reaches it. audit, walk, jaxprs: reading a client's program. method: what an algorithm is. cohort, pooled, round: a
round of it. phase, feature_moments, programs, plan, summary: a whole run, priced before it begins.
"""
