---
description: An aggregate over an aggregate; it follows customer_metrics
target_lag: 5 minutes
---
select c.segment, c.country, count(*) as customers, sum(m.revenue) as revenue
from {{ ref('shop.customer_metrics') }} m
join {{ ref('raw.customers') }} c on c.customer_id = m.customer_id
group by c.segment, c.country
