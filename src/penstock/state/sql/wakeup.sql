-- name: wake_cancel
-- Like `wake`; the worker of a cancelled task should know it before its next heartbeat.
select pg_notify('penstock_' || 'task'::regclass::oid, 'cancel');
