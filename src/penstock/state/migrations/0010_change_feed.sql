-- Why only Spark can read the log of a source, and whether its change feed is on; null: the log alone tells. Until now
-- both stood in one sentence.
alter table source add column change_feed boolean;
update source set
  change_feed = watched like '%; its change feed tells what changed',
  watched = coalesce(substring(watched from '^watched through Spark \((.*)\); '), watched)
where watched is not null;
alter table source rename column watched to only_spark;
alter table source add check ((only_spark is null) = (change_feed is null));
