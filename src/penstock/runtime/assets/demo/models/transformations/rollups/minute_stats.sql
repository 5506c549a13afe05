---
description: Blocks per minute, ten minutes at a time
interval: 10 minutes
position: minute
tags: [rollup]
---
select
  date_trunc('minute', slot_start) as minute,
  count(*) as blocks,
  sum(observations) as observations,
  min(first_seen_ms) as fastest_ms,
  max(last_seen_ms) as slowest_ms,
  sum(total_ms) as total_ms
from {{ ref('beacon.block_propagation') }}
group by date_trunc('minute', slot_start)
