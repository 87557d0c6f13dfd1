"""The worker: blocks in, verdicts and flags in one transaction out.

May import settings, metrics, stream, process, engine, host, registry.

It is crash-only: what fails outside user code ends it, and the next one continues from the cursors. It
loads neither torch nor a model. `process` is the loop; between units it follows the registry
(`registry_follower`) and sets the `gauges`; `context` is what all parts share. Each cursor (`cursors`) asks
the engines about its next unit while one is judged (`prefetch`, `inference`); `judged` decides per record
whose answer is judged; `pipeline` makes verdicts of it; `commits` writes them and moves the cursor. Windows
are saved with the commit every ten seconds and where the champion changes; `recovery` restores them with
strikes, sampling and budgets, and `slot_restore` feeds them the blocks behind that with the stored answers of
the version that stood there, and profiles the open minute. A challenger has its own slot and cursor and never
runs ahead of the champion. LLM judges (`llm_judge_slots`) have a cursor each behind it and ask in threads.

`objectives` measures ages and the pace per record; `admission`, which is pure, turns backlog and pace into
what is shed, in one declared order; `backfill` moves the champion's cursor over what cannot be in time and
judges the gap later. `live_budget` gives each record its odds of a live test, a function of the journal;
`live_tests` asks the replica about all copies of a unit at once; `live_endpoint` asks production, only where
the configuration names it. `replay`, a process of its own, runs the same pipeline over stored answers and
compares flags (`answers_again`: asks the engines in place of stored answers).
"""
