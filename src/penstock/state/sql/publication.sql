-- name: intend
-- The epoch is read with the intent: an invalidation that is not visible here comes later and will be found by it.
update attempt
set inputs = %(inputs)s, base_snapshot = %(base_snapshot)s, staging = %(staging)s, intent_at = clock(),
  basis_epoch = (select epoch from generation where no = %(generation)s)
where task = %(task)s and n = %(attempt)s and outcome is null
returning basis_epoch;

-- name: lock_generation_head
-- Publishing is serialised here, for milliseconds. First the generation, then the task, as everywhere.
select no, id, model, fingerprint, state, location, epoch, accepted_snapshot, audited_snapshot,
  data_timestamp
from generation where no = %(generation)s for no key update;

-- name: doubtful_ranges
-- Where a commit was found that was not accepted: what equals its rows may still be new to consumers.
select t.remaining from invalidation_target t join invalidation i on i.id = t.invalidation
where t.generation = %(generation)s and i.cause = 'audit' and t.remaining && %(ranges)s::int8multirange;

-- name: intent_at
-- When the inputs were fixed.
select coalesce(intent_at, started_at) from attempt where task = %(task)s and n = %(attempt)s;

-- name: accept_snapshot
-- An adopted commit may be older than what was accepted since. A foreign commit below ours is still to be audited.
update generation
set accepted_snapshot = greatest(accepted_snapshot, %(snapshot)s::bigint),
  audited_snapshot = case
    when audited_snapshot is null or (%(written)s and audited_snapshot = %(snapshot)s::bigint - 1) then %(snapshot)s
    else audited_snapshot
  end,
  data_timestamp = %(data_timestamp)s
where no = %(generation)s;

-- name: insert_frontier
-- One per accepted attempt; its cover rows point here.
insert into frontier (generation, snapshot, inputs, data_timestamp, task, attempt)
values (%(generation)s, %(snapshot)s, %(inputs)s, %(data_timestamp)s, %(task)s, %(attempt)s)
returning id;

-- name: accept_attempt
-- A task succeeds once: the unique index would stop a second one.
update attempt
set outcome = 'succeeded', snapshot = %(snapshot)s, strategy = %(strategy)s,
  strategy_reason = %(strategy_reason)s, metrics = %(metrics)s, warnings = %(warnings)s, ended_at = clock()
where task = %(task)s and n = %(attempt)s;

-- name: completed_attempt
-- By its token: not the task of another worker.
select task, n, worker, outcome, error_class, error, snapshot, inputs, metrics, started_at, ended_at
from attempt
where task = %(task)s and n = %(attempt)s and token = %(token)s and outcome is not null;
