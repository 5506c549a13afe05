---
description: What each customer has ordered
target_lag: 1 minute
---
select customer_id, count(*) as orders, sum(amount) as revenue, max(ordered_at) as last_order_at
from {{ ref('raw.orders') }}
group by customer_id
