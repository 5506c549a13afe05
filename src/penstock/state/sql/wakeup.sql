-- name: wake_cancel
-- Like `wake`; whoever runs what was cancelled should hear it before its next heartbeat.
select pg_notify('penstock_' || 'task'::regclass::oid, 'cancel');
