-- Knows nothing of forks: it is computed again where the transfers below it changed.
---
interval: 10
position: first_block
---
select cast(floor(block_number / 10) * 10 as bigint) as first_block, count(*) as transfers, sum(amount) as amount
from {{ ref('chain.transfers_enriched') }}
group by 1
