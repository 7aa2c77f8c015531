//! Which parts of plans can be dealt out, over which tables.

use std::sync::Arc;

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use super::cuts::{Cut, cuts};
use super::price::Means;

/// Tables of two files each: `l` and `o`, clustered by their first columns, and `c`, whose files have the same values.
async fn context(folder: &std::path::Path) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_collect_statistics(true)
        .set_bool("datafusion.optimizer.prefer_hash_join", true)
        .set_u64(
            "datafusion.optimizer.hash_join_single_partition_threshold",
            0,
        )
        .set_u64(
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            0,
        );
    let context = SessionContext::new_with_config(config);
    for (table, columns) in [
        ("l", "v - v % 3 AS lk, v % 7 AS lp, v AS lv"),
        ("o", "v AS ok, v % 10 AS oc"),
        ("c", "v % 10 AS ck, 'name' || v AS cn"),
    ] {
        for (number, (from, to)) in [(0, 299), (300, 599)].into_iter().enumerate() {
            let sql = format!("SELECT {columns} FROM generate_series({from}, {to}) AS t(v)");
            let file = folder.join(table).join(format!("{number}.parquet"));
            let path = file.to_str().unwrap();
            let rows = context.sql(&sql).await.unwrap();
            let options = DataFrameWriteOptions::new().with_single_file_output(true);
            std::fs::create_dir_all(folder.join(table)).unwrap();
            rows.write_parquet(path, options, None).await.unwrap();
        }
        let path = folder.join(table);
        let options = ParquetReadOptions::default();
        let path = path.to_str().unwrap();
        context
            .register_parquet(table, path, options)
            .await
            .unwrap();
    }
    context
}

async fn plan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = context.sql(sql).await.unwrap();
    frame.create_physical_plan().await.unwrap()
}

/// The ways to cut a plan, from its root down: the part, the first column of what is dealt out, those of what is cut beside it.
fn ways(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let first_column = |cut: &Cut, path: &[usize]| {
        let mut node = Arc::clone(&cut.part);
        for number in path {
            node = Arc::clone(node.children()[*number]);
        }
        node.schema().field(0).name().clone()
    };
    let way = |cut: &Cut| {
        let beside = cut.beside.iter();
        let mut beside: Vec<String> = beside.map(|b| first_column(cut, &b.path)).collect();
        beside.sort();
        let mut text = format!("{} over {}", cut.part.name(), first_column(cut, &cut.leaf));
        if !beside.is_empty() {
            text = format!("{text} beside {}", beside.join(", "));
        }
        text
    };
    let means = Means {
        devices: 2,
        read: 1e12,
        link: 1e10,
        room: 1e10,
    };
    cuts(plan, means).iter().map(way).collect()
}

#[tokio::test]
async fn parts_that_can_be_dealt_out() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path()).await;
    for (sql, has, lacks) in [
        // Groups of a key that no two shares have are whole, others meet.
        (
            "SELECT lk, sum(lv) FROM l GROUP BY lk ORDER BY 2 DESC LIMIT 3",
            &["SortExec(TopK) over lk"][..],
            &[][..],
        ),
        (
            "SELECT lp, sum(lv) FROM l GROUP BY lp ORDER BY 2 DESC LIMIT 3",
            &["AggregateExec over lp"],
            &["SortExec"],
        ),
        (
            "SELECT ck, count(*) FROM c GROUP BY ck ORDER BY 1",
            &["AggregateExec over ck"],
            &["SortExec"],
        ),
        // Joins by the key need the same range of the other side.
        (
            "SELECT oc, sum(lv) FROM l JOIN o ON lk = ok GROUP BY oc",
            &[
                "AggregateExec over lk beside ok",
                "AggregateExec over ok beside lk",
            ],
            &[],
        ),
        (
            "SELECT cn, sum(lv) FROM l JOIN o ON lk = ok JOIN c ON oc = ck GROUP BY cn",
            &["AggregateExec over lk beside ok", "AggregateExec over ck"],
            &["over ck beside"],
        ),
        // An outer join has the rows of one side, whatever there is on the other.
        (
            "SELECT oc, count(lv) FROM o LEFT JOIN l ON lk = ok GROUP BY oc",
            &["AggregateExec over ok beside lk"],
            &["AggregateExec over lk"],
        ),
        (
            "SELECT oc, count(lv) FROM o FULL JOIN l ON lk = ok GROUP BY oc",
            &[],
            &["AggregateExec over"],
        ),
        (
            "SELECT oc, count(*) FROM o WHERE ok NOT IN (SELECT lp FROM l) GROUP BY oc",
            &["AggregateExec over ok"],
            &["AggregateExec over lp", "beside"],
        ),
        // Groups beside the chain are whole as well.
        (
            "SELECT oc, count(*) FROM o WHERE ok IN (SELECT lk FROM l GROUP BY lk HAVING sum(lv) > 9) GROUP BY oc",
            &["AggregateExec over ok beside lk"],
            &[],
        ),
        // Keys that are computed tell nothing.
        (
            "SELECT oc, sum(lv) FROM l JOIN o ON lk = ok + 1 GROUP BY oc",
            &["AggregateExec over lk"],
            &["beside"],
        ),
        // A window needs its whole partition; a limit counts.
        (
            "SELECT lk, row_number() OVER (PARTITION BY lp ORDER BY lv) FROM l",
            &[],
            &["Window"],
        ),
        (
            "SELECT count(*) FROM (SELECT lk FROM l LIMIT 7)",
            &[],
            &["AggregateExec over"],
        ),
    ] {
        let plan = plan(&context, sql).await;
        let ways = ways(&plan);
        for way in has {
            assert!(
                ways.iter().any(|found| found == way),
                "{sql}: {way}: {ways:?}"
            );
        }
        for way in lacks {
            assert!(
                !ways.iter().any(|found| found.contains(way)),
                "{sql}: {way}: {ways:?}"
            );
        }
    }
}
