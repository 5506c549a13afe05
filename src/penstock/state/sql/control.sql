-- name: clear_holds
-- The scopes may be planned again, and deaths are counted from here; the tasks stay as history. In one order, because
-- several people may do this at once.
with held as materialized (
  select id from task where model = any (%(models)s) and held_until is not null order by id for update
)
update task t set held_until = null from held where t.id = held.id;

-- name: desire
-- Only a model that is in the project can be wanted or not.
update model set desired = %(desired)s where id = %(model)s and removed_at is null and type <> 'source';

-- name: controlled_models
-- For the error that names them.
select id from model where removed_at is null and type <> 'source' order by id;

-- name: generation_of_task
-- Locked before the task, as in every transaction.
select generation from task where id = %(task)s;

-- name: model_of_task
-- It may have died with all others.
select model from task where id = %(task)s and state = 'dead';

-- name: cancel_tasks
-- The lease goes with the task: whatever a running attempt does from here on is fenced off. The scope stays held.
with cancelled as (
  update task t
  set state = 'cancelled', lease_token = null, lease_expires_at = null, finished_at = clock(), held_until = 'infinity'
  where id = any (%(tasks)s) and state in ('queued', 'running', 'retrying')
  returning t.id, t.attempt
), ended as (
  update attempt a set outcome = 'cancelled', error = %(reason)s, ended_at = clock()
  from cancelled c where a.task = c.id and a.n = c.attempt and a.outcome is null
)
select count(*) from cancelled;

-- name: resume_task
-- With all that hold the same positions: one of them alone would change nothing.
with held as materialized (
  select t.id from task asked join task t on t.generation = asked.generation and t.claim_range && asked.claim_range
  where asked.id = %(task)s and asked.held_until is not null and t.held_until is not null
  order by t.id for update of t
)
update task t set held_until = null from held where t.id = held.id;
