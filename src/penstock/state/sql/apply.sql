-- name: lock_apply
-- One revision at a time: the lock is named after the table of revisions of this schema.
select pg_advisory_xact_lock('revision'::regclass::oid::int8 << 32);

-- name: active_revision
-- At most one, by a unique index.
select hash from revision where state = 'active';

-- name: bundle
-- Workers run what was applied, never what lies on their disk.
select bundle from revision where hash = %(hash)s;

-- name: stored_models
-- Removed ones too: they may come back and keep their table.
select id as name, type, lineage, removed_at is not null as removed from model order by id;

-- name: stored_generations
-- Only those that serve or are being built; retired ones are never taken up again by apply.
select no, model, fingerprint, lineage, state from generation where state in ('building', 'current');

-- name: lock_generations
-- In ascending order, like every transaction that locks several; publishing waits, and foreign keys do not.
select no from generation
where model = any (%(models)s) and state in ('building', 'current')
order by no for no key update;

-- name: supersede_revisions
-- First, because the unique index allows one active revision at any moment.
update revision set state = 'superseded' where state = 'active' and hash <> %(hash)s;

-- name: insert_revision
-- Going back to an earlier revision finds it stored.
insert into revision (hash, bundle, manifest, state) values (%(hash)s, %(bundle)s, %(manifest)s, 'active')
on conflict (hash) do update set state = 'active';

-- name: upsert_model
-- A model that comes back is a model again; whether it is paused stays a person's decision.
insert into model (id, type, lineage, axis, position, config, max_inflight, retries)
values (%(id)s, %(type)s, %(lineage)s, %(axis)s, %(position)s, %(config)s, %(max_inflight)s, %(retries)s)
on conflict (id) do update set
  type = excluded.type, lineage = excluded.lineage, axis = excluded.axis, position = excluded.position,
  config = excluded.config, max_inflight = excluded.max_inflight, retries = excluded.retries, removed_at = null;

-- name: delete_edges
-- They are replaced as a whole.
delete from edge where child = any (%(models)s);

-- name: insert_edge
-- A parent is a name, not a reference: it may be declared later or be gone already.
insert into edge (child, parent, group_no, ordinal, before_pos, after_pos, optional)
values (%(child)s, %(parent)s, %(group_no)s, %(ordinal)s, %(before_pos)s, %(after_pos)s, %(optional)s);

-- name: remove_model
-- The row and its table stay until they are purged.
update model set removed_at = clock() where id = %(model)s and removed_at is null;

-- name: kept_generations
-- Those whose tasks may still be active.
select no from generation where model = %(model)s and state in ('building', 'current') order by no;

-- name: retire
-- Its files stay; only a purge removes them.
update generation set state = 'retired' where no = any (%(generations)s);

-- name: insert_generation
-- Empty: its table is made by the first commit.
insert into generation (id, model, revision, fingerprint, lineage, location, state)
values (%(id)s, %(model)s, %(revision)s, %(fingerprint)s, %(lineage)s, %(location)s, %(state)s);

-- name: drop_tasks
-- A running attempt loses its token with the task: whatever it does from here on is fenced off.
with dropped as (
  update task t
  set state = %(state)s, lease_token = null, lease_expires_at = null, finished_at = clock()
  where generation = any (%(generations)s) and state in ('queued', 'running', 'retrying')
  returning t.id, t.attempt
)
update attempt a
set outcome = 'superseded', error = %(reason)s, ended_at = clock()
from dropped d where a.task = d.id and a.n = d.attempt and a.outcome is null;

-- name: building_models
-- Compared with the models asked for: all or none take over.
select model from generation
where model = any (%(models)s) and state = 'building'
  and (%(generations)s::bigint[] is null or no = any (%(generations)s::bigint[]));

-- name: retire_current
-- Before the promotion, because a model has one current generation at any moment.
update generation set state = 'retired' where model = any (%(models)s) and state = 'current' returning no;

-- name: promote_building
-- Readers resolve names to generations once, so they see the old set or the new one.
update generation set state = 'current' where model = any (%(models)s) and state = 'building';

-- name: audit
-- Who did what, kept.
insert into audit (actor, action, subject, detail) values (%(actor)s, %(action)s, %(subject)s, %(detail)s);

-- name: wake
-- Lossy and cheap: it only ends the wait of other processes. The channel is named after a table of this schema.
select pg_notify('penstock_' || 'task'::regclass::oid, '');

-- name: channel
-- The name that `wake` notifies.
select 'penstock_' || 'task'::regclass::oid;

-- name: forget_changed_sources
-- Bounds of another column, place or rule are no bounds: the source is observed anew.
delete from source s using model m, unnest(%(models)s::text[], %(lineages)s::text[]) as now (id, lineage)
where m.id = s.model and now.id = m.id and now.lineage <> m.lineage;
