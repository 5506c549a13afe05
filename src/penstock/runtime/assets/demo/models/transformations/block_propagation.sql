---
description: One row per block, with how many clients saw it and how fast
interval: {max: 15 minutes, min: 1 minute, align: 1 minute}
position: slot_start
---
select
  slot_start,
  slot,
  block_root,
  validator_index,
  count(*) as observations,
  min(propagation_ms) as first_seen_ms,
  max(propagation_ms) as last_seen_ms,
  sum(propagation_ms) as total_ms
from {{ ref('raw.beacon_blocks') }}
group by slot_start, slot, block_root, validator_index
