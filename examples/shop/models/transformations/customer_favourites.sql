---
description: Reads two tables that are made from the same orders
target_lag: 5 minutes
---
select m.customer_id, m.orders, d.category, count(*) as orders_of_category
from {{ ref('shop.customer_metrics') }} m
join {{ ref('shop.order_details') }} d on d.customer_id = m.customer_id
group by m.customer_id, m.orders, d.category
