"""The paper's evaluation, run again on a virtual clock by the code that serves.

This package is the one place outside the tests that joins the scheduler's core and the kvmanager's in one process
(docs/adr/0011): a step is the scheduler's plan, the memory's grant and the scheduler's commit. What a GPU would do in
between is a number of seconds from ``cost``.
"""
