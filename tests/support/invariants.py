"""What must hold in the tables of the state database at every moment, asked in plain SQL."""

from __future__ import annotations

import psycopg
from psycopg.rows import scalar_row

_VIOLATIONS = b"""
select format('task %s is %s with the token %s', id, state, lease_token) from task
where (state = 'running') <> (lease_token is not null) or (state = 'running') <> (lease_expires_at is not null)
union all
select format('task %s succeeded %s times', task, count(*)) from attempt
where outcome = 'succeeded' group by task having count(*) > 1
union all
select format('task %s is %s, and its accepted attempts are %s', t.id, t.state, count(a.task))
from task t left join attempt a on a.task = t.id and a.outcome = 'succeeded'
group by t.id having (t.state = 'succeeded') <> (count(a.task) = 1)
union all
select format('the active tasks %s and %s meet', t.id, u.id)
from task t join task u on u.generation = t.generation and u.id > t.id and u.ranges && t.ranges
where t.state in ('queued', 'running', 'retrying') and u.state in ('queued', 'running', 'retrying')
union all
select format('task %s is at attempt %s and has had %s, the last one %s', t.id, t.attempt, count(a.n), max(a.n))
from task t left join attempt a on a.task = t.id
group by t.id having count(a.n) <> t.attempt or coalesce(max(a.n), 0) <> t.attempt
union all
select format('attempt %s of task %s is open, and the task is %s at attempt %s', a.n, a.task, t.state, t.attempt)
from attempt a join task t on t.id = a.task
where a.outcome is null
  and (t.state, t.attempt, t.lease_token, t.worker) is distinct from ('running', a.n, a.token, a.worker)
union all
select format('task %s runs, and attempt %s has ended', t.id, t.attempt)
from task t join attempt a on a.task = t.id and a.n = t.attempt
where t.state = 'running' and a.outcome is not null
union all
select format('%s tasks of %s run', count(*), t.model) from task t join model m on m.id = t.model
where t.state = 'running' group by t.model, m.max_inflight having count(*) > m.max_inflight
union all
select format('%s was covered by attempt %s of task %s, which %s', c.range, c.attempt, c.task, a.outcome)
from coverage c join attempt a on a.task = c.task and a.n = c.attempt
where a.outcome is distinct from 'succeeded'
union all
select format('a task of generation %s is active, which is %s', g.no, g.state)
from task t join generation g on g.no = t.generation
where t.state in ('queued', 'running', 'retrying')
  and (g.state not in ('current', 'building')
    or exists (select from generation b where b.model = g.model and b.state = 'building' and b.no > g.no))
"""


def violations(connection: psycopg.Connection) -> list[str]:
    with connection.cursor(row_factory=scalar_row) as cursor:
        return [str(row) for row in cursor.execute(_VIOLATIONS)]
