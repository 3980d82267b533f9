"""A model check: every way in which a small world can go, breadth first, and what must hold in all.

The world is one run of two steps that carry one business effect between them, two workers, a
reaper, a READY sweep, timers, an operator, and messages. It may lose and double messages, kill
workers, stop one past its lease, lose a request or an answer, and cancel the run, each so many
times as the bounds allow.

**Real** are the decisions: ``core.planning`` (claim, settle, wake, redispatch, cancel),
``core.repairing.send_back``, ``core.effects.course``, ``core.retry`` (through planning) and
``engine.effects`` (``apply_effect``, ``of_lost``), with the compact state as packed bytes.
**Abstracted** are the database (each transaction is one step of the world: the guards of
``sql/apply.sql`` are restated here and can be taken away one by one), the run's version (every
settle is the one under the lock), time (whatever may come later may come now; leases end only for
workers that are dead or stopped), fusion (every step has a message), and other runs.
"""
