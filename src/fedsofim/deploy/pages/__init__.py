"""Pages to look at, on this machine only: a node for its operator, a job for its coordinator.

`view.py` says what a page can show, `operators.py` and `coordinators.py` what theirs show now, `rendered.py` makes HTML
of it, `loopback.py` serves it. A page shows what strangers wrote (job ids, names, reasons): it is text everywhere and
markup nowhere, in the template, which escapes everything, and in the script, which only ever sets text.
"""
