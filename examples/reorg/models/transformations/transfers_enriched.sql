-- Follows the tip block by block and is replaced where blocks are.
---
interval: {max: 100, min: 0}
position: block_number
---
select b.block_number, b.block_hash, b.sender, a.label, b.amount
from {{ ref('raw.blocks') }} b
left join {{ ref('raw.accounts') }} a on a.account = b.sender
