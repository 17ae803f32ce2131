CREATE STREAMING TABLE order_table AS
SELECT data.*, timestamp AS ordered_at FROM STREAM orders WHERE error IS NULL;

CREATE STREAMING TABLE click_table AS
SELECT data.*, timestamp AS clicked_at FROM STREAM clicks;

-- Computed anew by each run.
CREATE MATERIALIZED VIEW funnel AS
SELECT product, clicks, coalesce(orders, 0) AS orders, coalesce(revenue, 0) AS revenue
FROM (SELECT product, count(*) AS clicks FROM click_table GROUP BY product)
LEFT JOIN (
    SELECT product, count(*) AS orders, round(sum(quantity * price), 2) AS revenue
    FROM order_table
    GROUP BY product
) USING (product)
ORDER BY product;
