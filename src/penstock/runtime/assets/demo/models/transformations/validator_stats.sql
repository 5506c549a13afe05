-- A dynamic table: it has no intervals. Only the validators whose blocks changed are computed again.
---
description: How many blocks each validator proposed, and how fast they were seen
target_lag: 5 minutes
---
select
  validator_index,
  count(*) as blocks,
  sum(observations) as observations,
  min(first_seen_ms) as fastest_ms,
  max(last_seen_ms) as slowest_ms
from {{ ref('beacon.block_propagation') }}
group by validator_index
