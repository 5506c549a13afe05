-- name: owned_tasks
-- A commit belongs to us when its task is still active (it will be adopted) or was accepted.
select uuid from task
where uuid = any(%(tasks)s) and state in ('queued', 'running', 'retrying', 'succeeded');

-- name: accept_same_rows
-- After OPTIMIZE or its like: the same rows in other files, whose predecessors VACUUM may remove.
update generation set accepted_snapshot = %(snapshot)s
where no = %(generation)s and accepted_snapshot = %(expected)s;
