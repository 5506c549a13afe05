---
interval: 1 day
position: day
---
select date_trunc('day', hour) as day, sum(orders) as orders, sum(revenue) as revenue
from {{ ref('shop.orders_hourly') }}
group by date_trunc('day', hour)
