SELECT
    s_name,
    count(*) AS numwait
FROM
    supplier,
    lineitem l1,
    orders,
    nation,
    (
        SELECT
            l_orderkey AS any_order,
            min(l_suppkey) AS any_first,
            max(l_suppkey) AS any_last
        FROM
            lineitem
        GROUP BY
            l_orderkey
    ) AS any_line,
    (
        SELECT
            l_orderkey AS late_order,
            min(l_suppkey) AS late_first,
            max(l_suppkey) AS late_last
        FROM
            lineitem
        WHERE
            l_receiptdate > l_commitdate
        GROUP BY
            l_orderkey
    ) AS late_line
WHERE
    s_suppkey = l1.l_suppkey
    AND o_orderkey = l1.l_orderkey
    AND o_orderstatus = 'F'
    AND l1.l_receiptdate > l1.l_commitdate
    AND any_order = l1.l_orderkey
    AND any_first < any_last
    AND late_order = l1.l_orderkey
    AND late_first = late_last
    AND s_nationkey = n_nationkey
    AND n_name = ':1'
GROUP BY
    s_name
ORDER BY
    numwait DESC,
    s_name
LIMIT 100
