-- The first member of the inner list that covers an interval is read for it; the relay never does.
---
description: How fast each entity's blocks spread, from the relay where it has data, else from our own clients
interval: 30 minutes
position: slot_start
dependencies:
  - [raw.relay_blocks, beacon.block_propagation]
  - beacon.block_entity
---
select
  p.slot_start,
  p.slot,
  p.block_root,
  e.entity,
  p.observations,
  p.first_seen_ms,
  p.last_seen_ms - p.first_seen_ms as spread_ms,
  case when p.first_seen_ms < 1000 then 'fast' when p.first_seen_ms < 3000 then 'normal' else 'slow' end as speed
from {{ ref('raw.relay_blocks') }} p
join {{ ref('beacon.block_entity') }} e
  on e.slot_start = p.slot_start and e.block_root = p.block_root
