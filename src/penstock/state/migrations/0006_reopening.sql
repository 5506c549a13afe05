-- Why ranges were reopened, and from where on there is still something to compute them from.

-- Rows below have left at the old end: nothing is recomputed because of that, and nothing could be.
alter table source add column expired_pos bigint;

-- [[start, end, rows], ...] where it is known how many rows changed.
alter table event add column told jsonb not null default '[]';
alter table invalidation add column told jsonb not null default '[]';
-- source: rows of a source changed; parent: a model of ours was recomputed; the others are somebody's wish.
alter table invalidation add column cause text not null default 'manual'
  check (cause in ('source', 'parent', 'rerun', 'manual', 'audit'));
-- The SQL condition that a person gave; the ranges are those whose stored rows met it.
alter table invalidation add column row_filter text;
-- A key is about one table: the same one for another table is another wish.
alter table invalidation drop constraint invalidation_idem_key_key;
alter table invalidation add unique (model, idem_key);
create index invalidation_open on invalidation (model) where closed_at is null;

-- Since when something of it is stale. Null: nothing is, it only asks work that is under way.
alter table invalidation_target add column since timestamptz;
update invalidation_target t set since = i.created_at from invalidation i where i.id = t.invalidation;
create index invalidation_target_generation on invalidation_target (generation, invalidation);
