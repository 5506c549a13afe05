-- name: owned_tasks
-- A commit belongs to us when its task is still active (it will be adopted) or was accepted.
select uuid from task
where uuid = any(%(tasks)s) and state in ('queued', 'running', 'retrying', 'succeeded');

-- name: accept_same_rows
-- After OPTIMIZE or its like: the same rows in other files, whose predecessors VACUUM may remove.
update generation set accepted_snapshot = %(snapshot)s, audited_snapshot = %(snapshot)s
where no = %(generation)s and accepted_snapshot = %(expected)s;

-- name: judged
-- Whoever looked further stays ahead.
update generation set audited_snapshot = greatest(audited_snapshot, %(snapshot)s::bigint)
where no = %(generation)s;

-- name: forget_table
-- Its files are gone: the next publish makes a new table, whose snapshots are counted from the beginning.
update generation set accepted_snapshot = null, audited_snapshot = null
where no = %(generation)s and accepted_snapshot = %(expected)s;

-- name: accept_reset
-- Whatever was committed before is of no account any more.
update generation set accepted_snapshot = %(snapshot)s, audited_snapshot = %(snapshot)s, data_timestamp = null
where no = %(generation)s;
