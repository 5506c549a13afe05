---
interval: 1 hour
position: hour
---
select date_trunc('hour', ordered_at) as hour, country, count(*) as orders, sum(amount) as revenue
from {{ ref('raw.orders') }}
group by date_trunc('hour', ordered_at), country
