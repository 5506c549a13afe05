-- name: lock_generation
-- A transaction that changes what a generation holds takes this lock. Foreign keys do not wait for it.
select no from generation where no = %(generation)s for no key update;

-- name: read_folded
-- A generation without a row has not been folded yet.
select generation, through, covered, stale from folded where generation = any (%(generations)s);

-- name: read_signed_rows
-- Every generation from its own point on, in the order in which the changes were made; what follows each other with the
-- same sign comes as one. Looked up generation by generation: joined freely, the planner reads the whole table.
select known.generation, run.id, run.kind, run.ranges
from unnest(%(generations)s::bigint[], %(through)s::bigint[]) as known (generation, through)
cross join lateral (
  select max(c.id) as id, c.kind, range_agg(c.range) as ranges
  from (
    select c.id, c.kind, c.range,
      row_number() over (order by c.id) - row_number() over (partition by c.kind order by c.id) as island
    from coverage c where c.generation = known.generation and c.id > known.through
  ) c
  group by c.kind, c.island
) run
order by known.generation, run.id;

-- name: count_unfolded
-- Never counts further than it needs to.
select count(*) from (
  select from coverage
  where generation = %(generation)s
    and id > coalesce((select through from folded where generation = %(generation)s), 0)
  limit %(most)s
) as unfolded;

-- name: write_folded
-- The rows stay as history; `through` says which of them are in here. Of two who sum up at once the one who got
-- further counts.
insert into folded (generation, through, covered, stale)
values (%(generation)s, %(through)s, %(covered)s::bigint[], %(stale)s::bigint[])
on conflict (generation) do update
set through = excluded.through, covered = excluded.covered, stale = excluded.stale
where folded.through < excluded.through;

-- name: insert_signed_rows
-- Rows without a task: marks and drops.
insert into coverage (generation, kind, range)
select %(generation)s, %(kind)s, r from unnest(%(ranges)s::int8multirange) as r;

-- name: insert_covers
-- One row per chunk of an accepted attempt.
insert into coverage (
  generation, kind, range, task, attempt, frontier, snapshot, rows, digest_rows, digest_a, digest_b
)
select %(generation)s, 'cover', c.range, %(task)s, %(attempt)s, %(frontier)s, %(snapshot)s, c.rows, c.digest_rows,
  c.digest_a, c.digest_b
from unnest(
  %(ranges)s::int8range[], %(rows)s::bigint[], %(digest_rows)s::numeric[], %(digest_a)s::numeric[],
  %(digest_b)s::numeric[]
) as c (range, rows, digest_rows, digest_a, digest_b);

-- name: connected_rows
-- Covers and drops of these positions, and all that overlap those, so that nothing that hides one of them is missed.
with touched as materialized (
  select shifted(%(generation)s::bigint, range_agg(range)) as spans from coverage
  where kind = 'cover' and span && shifted(%(generation)s::bigint, %(ranges)s::int8multirange)
)
select c.id, c.kind, c.range, c.task, c.attempt, c.snapshot, c.rows, c.digest_rows, c.digest_a, c.digest_b, c.frontier
from touched join coverage c on c.span && touched.spans
where c.kind in ('cover', 'drop')
order by lower(c.range), c.id;

-- name: overlapping_rows
-- What was ever said about these positions, in order.
select c.kind, c.range, c.frontier
from coverage c
where c.span && shifted(%(generation)s::bigint, %(ranges)s::int8multirange)
order by c.id;

-- name: forget_digests
-- What the table holds there is no longer what was published.
update coverage set digest_rows = null, digest_a = null, digest_b = null
where generation = any (%(generations)s) and kind = 'cover' and range && %(ranges)s::int8multirange;
