-- name: tasks
-- With how the last attempt went; a new attempt that runs has no error yet, so the one before speaks.
select t.id, t.uuid, t.model, t.lane, t.chunks, t.choices, t.state, t.attempt, t.reason, t.worker, a.strategy,
  a.strategy_reason, a.metrics, a.snapshot, coalesce(a.error, (
    select b.error from attempt b where b.task = t.id and b.n = t.attempt - 1 and t.state = 'running'
  )) as error, t.created_at, t.finished_at
from task t left join attempt a on a.task = t.id and a.n = t.attempt
where (%(model)s::text is null or t.model = %(model)s::text)
  and (%(states)s::text[] is null or t.state = any (%(states)s::text[]))
order by t.id desc limit %(limit)s;

-- name: count_tasks
-- How many there are of what `tasks` lists the newest of.
select count(*) from task t
where (%(model)s::text is null or t.model = %(model)s::text)
  and (%(states)s::text[] is null or t.state = any (%(states)s::text[]));

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

-- name: newest_inputs
-- What the last accepted attempt of each generation read; looked up one by one, each by the index.
select known.generation, f.inputs
from unnest(%(generations)s::bigint[]) as known (generation)
cross join lateral (
  select c.frontier from coverage c where c.generation = known.generation and c.kind = 'cover' order by c.id desc limit 1
) last
join frontier f on f.id = last.frontier;

-- name: reopenings
-- Rows are counted on the axis of the input: on another axis it is unknown how many are in there.
select i.id, i.model, i.cause, i.reason, i.actor, i.input_snapshot as snapshot, i.ranges as changed, t.ranges, t.remaining,
  case when input.axis is not distinct from m.axis then i.told else '[]' end as row_counts,
  coalesce(reads.before_pos, 0) as before_pos, coalesce(reads.after_pos, 0) as after_pos, i.created_at, i.closed_at,
  i.row_filter
from invalidation_target t join invalidation i on i.id = t.invalidation
join generation g on g.no = t.generation join model m on m.id = g.model left join model input on input.id = i.model
left join lateral (
  select max(e.before_pos) as before_pos, max(e.after_pos) as after_pos
  from edge e where e.child = m.id and e.parent = i.model
) reads on true
where t.generation = %(generation)s and t.ranges && %(scope)s::int8multirange
order by i.id desc limit %(most)s;
