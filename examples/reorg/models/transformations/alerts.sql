-- Facts: an alert that was sent stays, whatever becomes of its block.
---
interval: {max: 100, min: 0}
position: block_number
update_strategy: append
unique_key: [block_hash, rule_id]
---
select block_number, block_hash, 'large' as rule_id, amount
from {{ ref('raw.blocks') }}
where amount >= {{ var('large') }}
