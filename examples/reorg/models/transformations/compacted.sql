-- Stays a hundred blocks behind the tip, where no fork reaches.
---
interval: 100
position: block_number
dependencies:
  - {model: raw.blocks, finality: 100}
---
select block_number, block_hash, amount
from {{ ref('raw.blocks') }}
