---
description: Every order with the names that belong to it
target_lag: 1 minute
key: order_id
---
select o.order_id, o.customer_id, c.name as customer, p.name as product, p.category, o.ordered_at, o.amount
from {{ ref('raw.orders') }} o
join {{ ref('raw.customers') }} c on c.customer_id = o.customer_id
join {{ ref('raw.products') }} p on p.product_id = o.product_id
