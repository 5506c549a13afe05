-- The interval is cut from the blocks; of the entities we also read the day before it.
---
description: Who proposed each block, by the newest entity reported for its validator in the 24 hours up to the slot
interval: {max: 30 minutes, min: 1 minute, align: 1 minute}
position: slot_start
dependencies:
  - "{{transformation}}.block_propagation"
  - {model: "{{external}}.validator_entity", before: 24 hours}
---
select
  b.slot_start,
  b.slot,
  b.block_root,
  b.validator_index,
  max_by(e.entity, e.observed_at) as entity
from {{ ref('beacon.block_propagation') }} b
left join {{ ref('raw.validator_entity') }} e
  on e.validator_index = b.validator_index
  and e.observed_at <= b.slot_start
  and e.observed_at > b.slot_start - interval 24 hours
group by b.slot_start, b.slot, b.block_root, b.validator_index
