//! A case: tables, settings and queries that one number determines.

use super::draw::Draw;
use super::metamorphic;
use super::query::Query;
use super::table::{Table, Traits, draw_tables};
use crate::Random;

/// Settings in the order in which they are made.
pub type Settings = Vec<(String, String)>;

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The number that determines it.
    pub seed: u64,
    /// The tables.
    pub tables: Vec<Table>,
    /// Settings of which each makes a session; the queries run in all.
    pub settings: Vec<Settings>,
    /// The queries.
    pub queries: Vec<Asked>,
    /// Whether expressions may end in an error.
    pub faults: bool,
}

/// A query, and others that have the same answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The query.
    pub query: Query,
    /// The others.
    pub forms: Vec<Query>,
}

/// Queries of a case: starting a session and filling tables costs less than compiling the kernels of one.
const QUERIES: usize = 6;

impl Case {
    /// The case of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let traits = Traits {
            extremes: random.chance(15),
            wild: random.chance(10),
        };
        let faults = random.chance(5);
        let tables = draw_tables(&mut random, traits);
        let mut settings = vec![draw_settings(&mut random)];
        if random.chance(20) {
            settings.push(draw_settings(&mut random));
        }
        let mut queries = Vec::new();
        for _ in 0..QUERIES {
            let mut draw = Draw::new(Random::new(random.next()), &tables, traits, faults);
            let query = draw.query();
            let forms = match draw.random.chance(15) {
                true => metamorphic::forms(&query, &mut draw),
                false => vec![],
            };
            queries.push(Asked { query, forms });
        }
        Self {
            seed,
            tables,
            settings,
            queries,
            faults,
        }
    }
}

/// Settings that force a choice, and the values that they may have.
const CHOICES: &[(usize, &str, &[&str])] = &[
    (
        6,
        "warpline.join",
        &[
            "perfect", "nphj", "phj_ur", "phj_tr", "smj_ur", "smj_tr", "triton",
        ],
    ),
    (
        6,
        "warpline.group_by",
        &[
            "private",
            "shared",
            "global",
            "runs",
            "hgb",
            "sgb_ur",
            "sgb_tr",
            "sgb_de_tr",
            "pgb_ur",
            "pgb_tr",
        ],
    ),
    (3, "warpline.pipeline", &["tile", "tree"]),
    (
        3,
        "warpline.load_balance",
        &["none", "fws", "nifs", "nifs_aws"],
    ),
    (1, "warpline.fws_threshold", &["3", "64"]),
    (1, "warpline.materialization", &["eager"]),
    (2, "warpline.index_joins", &["on", "off"]),
    (4, "warpline.range_joins", &["sorted", "pairs"]),
    (5, "warpline.late_columns", &["on", "off"]),
    (3, "warpline.lane_refill", &["on", "off"]),
    (4, "warpline.reentry", &["on", "off"]),
    (2, "warpline.group_slots", &["1", "64"]),
    (3, "warpline.device_memory", &["64KiB", "256KiB", "1MiB"]),
    (1, "warpline.overlap_load", &["false"]),
    (4, "warpline.parquet", &["device"]),
    (
        4,
        "datafusion.execution.target_partitions",
        &["1", "2", "3", "8"],
    ),
    (2, "datafusion.execution.batch_size", &["1", "7", "100"]),
    (
        4,
        "datafusion.optimizer.hash_join_single_partition_threshold",
        &["0", "1000"],
    ),
    (
        3,
        "datafusion.optimizer.hash_join_single_partition_threshold_rows",
        &["0", "1", "100"],
    ),
    (1, "datafusion.optimizer.repartition_joins", &["false"]),
    (
        1,
        "datafusion.optimizer.repartition_aggregations",
        &["false"],
    ),
    (1, "datafusion.optimizer.prefer_hash_join", &["false"]),
    (
        1,
        "datafusion.execution.parquet.pushdown_filters",
        &["true"],
    ),
    (
        1,
        "datafusion.optimizer.enable_dynamic_filter_pushdown",
        &["false"],
    ),
];

fn draw_settings(random: &mut Random) -> Settings {
    let count = *random.weighted(&[(45, 0), (25, 1), (15, 2), (10, 3), (5, 5)]);
    let names: Vec<(usize, usize)> = CHOICES
        .iter()
        .enumerate()
        .map(|(i, (weight, _, _))| (*weight, i))
        .collect();
    let mut settings = Settings::new();
    for _ in 0..count {
        let (_, name, values) = CHOICES[*random.weighted(&names)];
        if settings.iter().all(|(set, _)| set != name) {
            settings.push((name.to_string(), (*random.one(values)).to_string()));
        }
    }
    // Partitioned joins in a plan need both.
    let by_size = "datafusion.optimizer.hash_join_single_partition_threshold";
    let by_rows = "datafusion.optimizer.hash_join_single_partition_threshold_rows";
    let has = |name: &str| settings.iter().any(|(set, _)| set == name);
    if has(by_size) != has(by_rows) && random.chance(70) {
        let missing = if has(by_size) { by_rows } else { by_size };
        settings.push((missing.into(), (*random.one(&["0", "1"])).into()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::render;

    #[test]
    fn a_seed_determines_its_case() {
        let text = |seed| {
            let case = Case::draw(seed);
            let queries: Vec<String> = case
                .queries
                .iter()
                .map(|asked| render::query(&asked.query))
                .collect();
            format!("{:?} {:?} {queries:?}", case.tables, case.settings)
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
