-- name: owned_tasks
-- A commit belongs to us when its task is still active (it will be adopted) or was accepted.
select uuid, state = 'succeeded' as accepted from task
where uuid = any(%(tasks)s) and state in ('queued', 'running', 'retrying', 'succeeded');

-- name: accept_same_rows
-- After OPTIMIZE or its like: the same rows in other files, whose predecessors VACUUM may remove.
update generation set accepted_snapshot = %(snapshot)s, audited_snapshot = %(snapshot)s
where no = %(generation)s and accepted_snapshot = %(expected)s;

-- name: audited
-- Of the table that was looked at: one that was made anew since counts its snapshots from the beginning.
update generation set audited_snapshot = %(snapshot)s
where no = %(generation)s
  and accepted_snapshot is not distinct from %(accepted)s::bigint
  and audited_snapshot is not distinct from %(audited)s::bigint;

-- name: forget_table
-- Its files are gone: the next publish makes a new table, whose snapshots are counted from the beginning.
update generation
set accepted_snapshot = null, audited_snapshot = null, lost_snapshot = greatest(lost_snapshot, accepted_snapshot)
where no = %(generation)s and accepted_snapshot = %(expected)s;

-- name: accept_reset
-- Whatever was committed before is of no account any more.
update generation set accepted_snapshot = %(snapshot)s, audited_snapshot = %(snapshot)s, data_timestamp = null
where no = %(generation)s;
