"""The shadow engine: versions of a trunk group answering on one device.

May import settings, metrics, process.

Its process needs torch, numpy and Arrow alone (a bare GPU machine runs it); `client`, `groups`, `metrics`,
`trunk_groups` and `version_launch` are the worker's end of it. `engine.Engine` is single-threaded, without
timers and futures: blocks in, one forward pass a step, blocks out. `lane` takes what is queued by priority
and length up to the batch that was measured to be best (`pace`). An `executor` runs versions together, and
`plan` decides which: alone; on one trunk (`trunks`: equal weights are one object, equal computations run
once); as LoRA or prefix adapters mixed in one batch (`adapters`). `device` is the seam to CPU and CUDA
(`cuda`: pinned double buffers, captured graphs, duty). `client`, in the worker, has the deadlines:
`work_board` says whose work was under way when an engine hung or ended, and that version is asked again
alone, so that the culprit is known. `launch` starts an engine and speaks with it, `version_launch` says with
which secrets and files, `memory_bound` holds it to its memory, and `groups` keeps uploaded challengers apart
until they have answered. `single_version` is one version whose answers are waited for: an upload at the
gate, a model of `outrider compare`.
"""
