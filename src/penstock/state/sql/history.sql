-- name: tasks
-- With how the last attempt went; a new attempt that runs has no error yet, so the one before speaks.
select t.id, t.uuid, t.model, t.lane, t.chunks, t.choices, t.state, t.attempt, t.reason, t.worker, a.strategy, a.metrics,
  a.snapshot, coalesce(a.error, (
    select b.error from attempt b where b.task = t.id and b.n = t.attempt - 1 and t.state = 'running'
  )) as error, t.created_at, t.finished_at
from task t left join attempt a on a.task = t.id and a.n = t.attempt
where (%(model)s::text is null or t.model = %(model)s::text)
  and (%(states)s::text[] is null or t.state = any (%(states)s::text[]))
order by t.id desc limit %(limit)s;

-- name: attempts
-- In order.
select task, n, worker, outcome, error_class, error, snapshot, inputs, metrics, started_at, ended_at, strategy,
  followed_by, log_tail
from attempt where task = any (%(tasks)s) order by task, n;

-- name: keep_log
-- Of this very attempt, whether it has ended or not.
update attempt set log_tail = %(log_tail)s where task = %(task)s and n = %(attempt)s and token = %(token)s;

-- name: frontiers
-- Once each: a batch of chunks shares one.
select id, inputs from frontier where id = any (%(frontiers)s);
