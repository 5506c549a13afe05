-- Every interval of a generation fails alike: nothing of it is claimed while this is active.
create table suspension (
  generation bigint primary key references generation on delete cascade,
  active boolean not null,
  error text not null,
  alike text not null,
  inputs jsonb not null,
  times integer not null check (times > 0),
  since timestamptz not null default clock()
);

-- How far each input of a model is: a table and its snapshot, or the bounds of what has none.
create function input_marks(child_model text) returns jsonb language sql stable as $$
  select coalesce(jsonb_object_agg(e.parent, coalesce(s.mark, g.mark)), '{}')
  from (select distinct parent from edge where child = child_model) e
  left join lateral (
    select coalesce(s.table_id, '') || '@' || coalesce(s.snapshot::text, s.min_pos || '..' || s.end_pos, '') as mark
    from source s where s.model = e.parent
  ) s on true
  left join lateral (
    select g.id || '@' || coalesce(g.accepted_snapshot::text, '') as mark from generation g
    where g.model = e.parent and g.state in ('building', 'current') order by g.no desc limit 1
  ) g on true
$$;
