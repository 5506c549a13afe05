-- A fault of storage or Spark in every interval may end without anybody's doing: the model is tried again by itself.
alter table suspension add column passing boolean not null default false;
