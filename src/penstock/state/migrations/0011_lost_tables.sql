-- The highest snapshot of a table that lay in this place before and is gone: the next one counts from the beginning, and
-- up to here its numbers say nothing of what is newer.
alter table generation add column lost_snapshot bigint;
