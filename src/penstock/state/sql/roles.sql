-- name: has_role
-- By its exact name, as it is stored.
select exists (select from pg_roles where rolname = %(role)s) as is_there;

-- name: reader_grants
-- Statements to run one after the other. The last two are about tables and functions that the same owner makes later.
select format(form, %(schema)s::text, %(role)s::text)
from unnest(array[
  'grant usage on schema %%1$I to %%2$I',
  'grant select on all tables in schema %%1$I to %%2$I',
  'grant execute on all functions in schema %%1$I to %%2$I',
  'alter default privileges in schema %%1$I grant select on tables to %%2$I',
  'alter default privileges in schema %%1$I grant execute on functions to %%2$I'
]) with ordinality as forms (form, place)
order by place;

-- name: hidden_tables
-- The server only warns when a role grants what it may not grant.
select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relkind in ('r', 'p', 'v') and not has_table_privilege(%(role)s, c.oid, 'select')
order by c.relname;
