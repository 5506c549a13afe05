-- A strict interval: an hour is built when it is complete, not before.
---
description: Blocks per hour, from the five minutes; an hour has 300 slots
interval: 1 hour
position: hour
tags: [rollup]
---
select
  date_trunc('hour', five_minute) as hour,
  sum(blocks) as blocks,
  300 - sum(blocks) as skipped_slots,
  sum(observations) as observations,
  min(fastest_ms) as fastest_ms,
  max(slowest_ms) as slowest_ms,
  sum(total_ms) / sum(observations) as avg_ms
from {{ ref('beacon.five_minute_stats') }}
group by date_trunc('hour', five_minute)
