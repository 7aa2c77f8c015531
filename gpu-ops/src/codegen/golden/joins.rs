//! Kernels of joins, for each kind of index.

use arrow::datatypes::DataType;

use super::case::Case;
use super::check;
use super::expressions::{binary, column, like, probe, small};
use super::table::{CUSTOMER, HASH, ID, MODE, PRICE, STATUS};
use crate::algorithm::MaterializedJoin;
use crate::expr::{BinaryOp, Expr};
use crate::graph::{Band, Bound, IndexKind, Probe, ProbeKind, Source, Stage};

#[test]
fn join_array() {
    let mut case = Case::indexed(IndexKind::Perfect);
    let payload = vec![column(PRICE), column(STATUS)];
    let index = case.build(vec![column(ID)], payload, |build| build.unique = true);
    let dearer = binary(
        BinaryOp::Lt,
        column(PRICE),
        like(8, PRICE, false),
        DataType::Boolean,
    );
    let probe = Probe {
        residual: vec![dearer],
        ..probe(index, ProbeKind::Inner, vec![column(STATUS)])
    };
    let columns = vec![column(ID), like(8, PRICE, false), like(9, STATUS, true)];
    let stages = vec![small(4000), Stage::Probe(probe)];
    case.rows(Source::Scan(0), stages, columns);
    check("join_array", case);
}

#[test]
fn rows_gathered() {
    let mut case = Case::indexed(IndexKind::Perfect);
    case.refill = Some(2);
    let payload = vec![column(PRICE)];
    let unique = case.build(vec![column(ID)], payload, |build| build.unique = true);
    let known = case.build(vec![column(ID)], vec![], |build| build.existence = true);
    let look_up = probe(unique, ProbeKind::Left, vec![column(STATUS)]);
    let stages = vec![
        small(4000),
        Stage::Probe(look_up),
        Stage::Probe(probe(known, ProbeKind::Semi, vec![column(CUSTOMER)])),
    ];
    let columns = vec![column(ID), like(8, PRICE, true)];
    // Each behind a look-up that drops some, and all of them.
    case.rows(Source::Scan(0), stages.clone(), columns.clone());
    case.rows(Source::Scan(0), stages[..2].to_vec(), columns);
    check("rows_gathered", case);
}

#[test]
fn join_hash() {
    let mut case = Case::indexed(IndexKind::Hash);
    let keys = || vec![column(HASH)];
    let unique = case.build(keys(), vec![column(PRICE)], |build| build.unique = true);
    let many = case.build(vec![column(CUSTOMER)], vec![column(MODE)], |_| {});
    let look_up = Stage::Probe(probe(unique, ProbeKind::Left, keys()));
    let columns = vec![column(ID), like(8, PRICE, true)];
    case.rows(Source::Scan(0), vec![look_up], columns);
    let pairs = vec![like(0, ID, false), like(1, MODE, false)];
    let matches = probe(many, ProbeKind::Inner, vec![column(CUSTOMER)]);
    case.pairs(matches, vec![column(ID)], pairs);
    check("join_hash", case);
}

#[test]
fn semi_anti_outer() {
    let mut case = Case::indexed(IndexKind::Perfect);
    let known = case.build(vec![column(ID)], vec![], |build| build.existence = true);
    let full = case.build(vec![column(ID)], vec![column(PRICE)], |build| {
        build.unique = true;
        build.mark_sets = 1;
    });
    let status = || vec![column(STATUS)];
    let outer = Probe {
        marks: vec![vec![]],
        ..probe(full, ProbeKind::Left, status())
    };
    let stages = vec![
        Stage::Probe(probe(known, ProbeKind::Semi, status())),
        Stage::Probe(probe(known, ProbeKind::Anti, vec![column(CUSTOMER)])),
        Stage::Probe(probe(known, ProbeKind::Mark, vec![column(PRICE)])),
        Stage::Probe(outer),
    ];
    let mark = Expr::column(8, DataType::Boolean, false);
    let columns = vec![column(ID), mark, like(9, PRICE, true)];
    case.rows(Source::Scan(0), stages, columns);
    let unmatched = Source::Entries(full, vec![false]);
    case.rows(unmatched, vec![], vec![like(0, PRICE, false)]);
    check("semi_anti_outer", case);
}

#[test]
fn join_partitioned() {
    let join = MaterializedJoin::PhjTr;
    let mut case = Case::indexed(IndexKind::Materialized(join));
    let payload = vec![column(PRICE), column(STATUS)];
    let index = case.build(vec![column(CUSTOMER)], payload, |build| {
        build.join = Some(MaterializedJoin::PhjTr);
    });
    let matches = probe(index, ProbeKind::Inner, vec![column(HASH)]);
    let pairs = vec![
        like(0, ID, false),
        like(1, PRICE, false),
        like(2, STATUS, true),
    ];
    case.pairs(matches, vec![column(ID)], pairs);
    check("join_partitioned", case);
}

#[test]
fn join_sorted() {
    let mut case = Case::new();
    let keyed = case.build(vec![column(CUSTOMER)], vec![column(PRICE)], |build| {
        build.order = Some(column(ID));
    });
    let alone = case.build(vec![], vec![column(MODE)], |build| {
        build.order = Some(column(HASH));
        build.mark_sets = 1;
    });
    let end = |column, inclusive| {
        Some(Bound {
            value: column,
            inclusive,
        })
    };
    let between = Probe {
        band: Some(Box::new(Band {
            lower: end(column(STATUS), true),
            upper: end(column(ID), false),
        })),
        ..probe(keyed, ProbeKind::Inner, vec![column(CUSTOMER)])
    };
    let pairs = vec![like(0, ID, false), like(1, PRICE, false)];
    case.pairs(between, vec![column(ID)], pairs);
    let above = Probe {
        band: Some(Box::new(Band {
            lower: end(column(ID), false),
            upper: None,
        })),
        marks: vec![vec![]],
        ..probe(alone, ProbeKind::Semi, vec![])
    };
    case.rows(Source::Scan(0), vec![Stage::Probe(above)], vec![column(ID)]);
    check("join_sorted", case);
}

/// An index that is kept: no list of entries stands between a key's range and the payload.
#[test]
fn join_clustered() {
    let mut case = Case::indexed(IndexKind::Perfect);
    let payload = vec![column(PRICE), column(STATUS)];
    let index = case.build(vec![column(CUSTOMER)], payload, |build| {
        build.clustered = true;
    });
    let dearer = binary(
        BinaryOp::Lt,
        column(PRICE),
        like(8, PRICE, false),
        DataType::Boolean,
    );
    let some = Probe {
        residual: vec![dearer],
        ..probe(index, ProbeKind::Semi, vec![column(STATUS)])
    };
    case.rows(Source::Scan(0), vec![Stage::Probe(some)], vec![column(ID)]);
    let matches = probe(index, ProbeKind::Inner, vec![column(CUSTOMER)]);
    let pairs = vec![
        like(0, ID, false),
        like(1, PRICE, false),
        like(2, STATUS, true),
    ];
    case.pairs(matches, vec![column(ID)], pairs);
    // The table is in the order of this key: it has the payload.
    let in_table = case.build(vec![column(ID)], vec![column(PRICE)], |build| {
        build.clustered = true;
    });
    let matches = probe(in_table, ProbeKind::Inner, vec![column(CUSTOMER)]);
    let pairs = vec![like(0, ID, false), like(1, PRICE, false)];
    case.pairs(matches, vec![column(ID)], pairs);
    check("join_clustered", case);
}
