"""The assertion host: batches in, verdicts of user code out.

May import settings, metrics, process.

The process is stateless. Results of quick tasks travel in one frame (`task_runner`); shared memory
(`progress`) tells the worker which task was running when the process hung or died: that one gets a strike,
the others run again; one that dies behind others is asked alone first. `shared_state` seals numpy and its
like and puts the rest back before a frame is sent; if tasks changed it, they run again one by one. Three
strikes of a slot in five minutes suspend an assertion there for an hour, or until its revision changes.
"""
