-- The same with the other policy: an alert of a block that is gone is taken back.
---
interval: {max: 100, min: 0}
position: block_number
update_strategy: append
unique_key: [block_hash, rule_id]
on_retract: retract
---
select block_number, block_hash, 'large' as rule_id, amount
from {{ ref('raw.blocks') }}
where amount >= {{ var('large') }}
