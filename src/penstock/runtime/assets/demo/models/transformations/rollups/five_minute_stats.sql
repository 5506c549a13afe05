---
description: Blocks per five minutes, half an hour at a time, from the minutes
interval: 30 minutes
position: five_minute
tags: [rollup]
---
select
  timestamp_seconds(floor(unix_timestamp(minute) / 300) * 300) as five_minute,
  sum(blocks) as blocks,
  sum(observations) as observations,
  min(fastest_ms) as fastest_ms,
  max(slowest_ms) as slowest_ms,
  sum(total_ms) as total_ms
from {{ ref('beacon.minute_stats') }}
group by timestamp_seconds(floor(unix_timestamp(minute) / 300) * 300)
