-- name: overlapped_rows
-- Old rows about positions that other covers speak about too. Sorting all covers once finds them a hundred times quicker
-- than asking an index about each.
with moment as materialized (
  select clock() - make_interval(secs => %(retention_seconds)s) as past
), neighbours as (
  select id, at, lower(range) as low, upper(range) as high,
    max(upper(range)) over (
      partition by generation order by lower(range), id rows between unbounded preceding and 1 preceding
    ) as reached,
    lead(lower(range)) over (partition by generation order by lower(range), id) as next
  from coverage where kind = 'cover'
)
select n.id from neighbours n, moment where n.at < past and (n.reached > n.low or n.next < n.high)
union all
select c.id from coverage c, moment where c.kind <> 'cover' and c.at < past
order by id;

-- name: prune_coverage
-- A row is hidden when later covers speak about all of its positions: whatever is summed up from any point on is the same
-- without it. Drops hide nothing here: what was covered since a task died would shrink with them. A row that ten thousand
-- others speak about stays, else one step could take minutes. Rows that somebody is changing are left for the next time,
-- so that nobody waits here. The ids are compared outside of the search: an index on them finds half of the table.
with hidden as materialized (
  select s.id from coverage s
  where s.id = any (%(rows)s) and s.span <@ (
    select range_agg(h.span) filter (where h.id > s.id)
    from (select o.id, o.span from coverage o where o.kind = 'cover' and o.span && s.span limit 10000) h
  )
), free as materialized (
  select c.id from hidden h join coverage c on c.id = h.id for update of c skip locked
), gone as (
  delete from coverage c using free where c.id = free.id returning c.frontier
)
select distinct frontier from gone where frontier is not null;

-- name: prune_frontiers
-- Those that no cover was made from any more.
delete from frontier f
where f.id = any (%(frontiers)s) and not exists (select from coverage c where c.frontier = f.id);

-- name: prune_tasks
-- Ended, long ago, holding no scope, and nothing that is known was made by it. A commit that was never audited must still
-- be known as ours. What has ended stays so: it is enough to lock what was found.
with moment as materialized (
  select clock() as at, clock() - make_interval(secs => %(retention_seconds)s) as past
), stretch as materialized (
  select t.id, t.generation, t.state, t.finished_at, t.held_until from task t
  where t.id > %(after)s order by t.id limit %(most)s
), old as materialized (
  select t.id from stretch t join generation g on g.no = t.generation, moment
  where t.finished_at < moment.past and (t.held_until is null or t.held_until <= moment.at)
    and not exists (select from coverage c where c.task = t.id)
    and not exists (select from frontier f where f.task = t.id)
    and not exists (select from task child where child.parent = t.id)
    and (
      t.state <> 'succeeded' or g.state = 'purged'
      or exists (
        select from attempt a where a.task = t.id and a.outcome = 'succeeded' and a.snapshot <= g.audited_snapshot
      )
    )
), free as materialized (
  select t.id from old join task t on t.id = old.id for update of t skip locked
), tries as (
  delete from attempt a using free where a.task = free.id
), gone as (
  delete from task t using free where t.id = free.id returning t.id
)
select (select max(id) from stretch) as last, (select count(*) from gone) as removed;

-- name: prune_events
-- Buried ones: their consumers were asked to do everything. Others are deleted when they are handled.
delete from event where no in (
  select no from event
  where dead and created_at < clock() - make_interval(secs => %(retention_seconds)s)
  limit %(most)s for update skip locked
);

-- name: prune_invalidations
-- Closed ones, with what they asked of generations that are no longer worked on: the stale rows say what is old there.
with old as materialized (
  select i.id from invalidation i
  where i.closed_at < clock() - make_interval(secs => %(retention_seconds)s)
    and not exists (
      select from invalidation_target t join generation g on g.no = t.generation join model m on m.id = g.model
      where t.invalidation = i.id and not isempty(t.remaining) and g.state in ('building', 'current')
        and m.removed_at is null
    )
  limit %(most)s for update of i skip locked
), asked as (
  delete from invalidation_target t using old where t.invalidation = old.id
)
delete from invalidation i using old where i.id = old.id;
