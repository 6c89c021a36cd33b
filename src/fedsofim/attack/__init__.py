"""The attacker: guesses a record from what left, and so measures from below what the ledger promises from above.

setting (what is attacked), worlds (two data sets that differ in one record), trials (the real client code, thousands of
times), scoring (one number from everything seen), bounds (what the guesses prove), claims (what was promised), verdicts
(both side by side). broken: engines that promise what they do not hold, which the attacker must catch. one_run: many
canaries in one training. nodes: deployed nodes through their message path, two_sums: and
a secure sum that can do without some of them. everything: the table of all of these.
"""
