//! Settings of a query alone: clients of servers may change them, and they go with a query to workers.

/// Settings that change how a client's own queries are planned, and reach neither the host nor other clients.
pub(crate) const CLIENT_SETTINGS: &[&str] = &[
    "warpline.cold",
    "warpline.computed_columns",
    "warpline.fws_threshold",
    "warpline.group_by",
    "warpline.index_joins",
    "warpline.join",
    "warpline.load_balance",
    "warpline.materialization",
    "warpline.metrics",
    "warpline.min_rows",
    "warpline.overlap_load",
    "warpline.pipeline",
    "warpline.plan_cache",
    "warpline.reentry",
    "warpline.require_gpu",
    "warpline.shard_plan",
    "warpline.shards",
    "warpline.value_tables",
];
