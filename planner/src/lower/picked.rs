//! The first rows of an order over a table: found by their keys alone, after which all else is read for them only (late
//! materialisation, as in Abadi et al., "Materialization Strategies in a Column-Oriented DBMS", ICDE 2007).
//!
//! ```text
//! keys of hits := scan hits | filter (…) | rows (row number, eventtime)
//! first of hits := sort keys of hits by eventtime fetch 10
//! output := scan hits picked by first of hits | rows (all columns)
//! ```
//!
//! Otherwise all columns of every row that passes are written down, of which a sort reads the keys and leaves a few rows.

use arrow::datatypes::DataType;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{
    Parts, ProbeKind, ResultColumn, ResultId, ResultKind, Sink, Sort, SortKey, Source, Stage, Step,
};

use super::{Lowerer, OpenPipeline, read_by};
use crate::choose::price::written;
use crate::config::LateColumns;
use crate::reason::Reason;
use crate::rel::expr::substitute_all;
use crate::rel::{RelKind, RelRef};

/// An order of which some rows are asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstOf<'a> {
    /// By columns of the rows.
    pub(super) keys: &'a [SortKey],
    pub(super) skip: u64,
    pub(super) fetch: u64,
}

impl<'a> FirstOf<'a> {
    /// What is asked for; `None` for all rows, or for any.
    pub(super) fn new(keys: &'a [SortKey], skip: u64, fetch: Option<u64>) -> Option<Self> {
        let fetch = fetch.filter(|_| !keys.is_empty())?;
        Some(Self { keys, skip, fetch })
    }
}

impl Lowerer<'_> {
    /// Are the rows of `rel` those of a table, each once, with conditions and projections alone?
    fn is_of_table(rel: &RelRef) -> bool {
        match &rel.kind {
            RelKind::Scan { .. } => true,
            RelKind::Filter { input, .. }
            | RelKind::Project { input, .. }
            | RelKind::Scalar { input, .. } => Self::is_of_table(input),
            _ => false,
        }
    }

    /// The first rows of `exprs` over `input`, found by their keys and then read by their numbers, with the first `columns.len()` of
    /// `exprs` as columns; `None` where that is not possible, or not cheaper.
    pub(super) fn first_rows(
        &mut self,
        input: &RelRef,
        exprs: &[Expr],
        columns: &[ResultColumn],
        first: FirstOf<'_>,
    ) -> Result<Option<ResultId>, Reason> {
        if !self.picks(input, exprs, first) {
            return Ok(None);
        }
        let open = self.stream(input, &read_by(exprs))?;
        let written = substitute_all(exprs, &open.columns)?;
        // What can fail fails for a row that is left out, too.
        if written.iter().any(Expr::may_fault) {
            return Ok(None);
        }
        Ok(Some(self.picked(
            input,
            open,
            &written,
            columns.to_vec(),
            first,
        )))
    }

    /// Should the first rows of `exprs` over `input` be found by their keys and then be read by their numbers?
    fn picks(&self, input: &RelRef, exprs: &[Expr], first: FirstOf<'_>) -> bool {
        /// A row that is picked costs a sector of each of its columns.
        const SECTOR: f64 = 32.0;
        /// Kernels more: the one that reads the rows.
        const KERNELS: f64 = 1.0;
        /// Few enough for a sort that looks at keys alone.
        const SHARE: f64 = 0.25;
        if self.input.late_columns == LateColumns::Off || self.input.parts != Parts::Never {
            return false;
        }
        let keys: Vec<&Expr> = first
            .keys
            .iter()
            .filter_map(|k| exprs.get(k.column))
            .collect();
        let possible = Self::is_of_table(input) && keys.len() == first.keys.len();
        if !possible || self.input.late_columns == LateColumns::On {
            return possible;
        }
        let machine = self.input.machine;
        let rows = self.input.estimator.rows(input);
        let wanted = first.skip.saturating_add(first.fetch) as f64;
        if wanted > rows * SHARE {
            return false;
        }
        let bytes = |expr: &Expr| f64::from(self.width(input, expr));
        let all: f64 = exprs.iter().map(bytes).sum();
        // Keys, and the number of the row.
        let narrow = keys.into_iter().map(bytes).sum::<f64>() + 4.0;
        let saved = written(machine, rows * (all - narrow).max(0.0));
        let picking =
            machine.stream(wanted * exprs.len() as f64 * SECTOR) + machine.launches(KERNELS);
        saved > 2.0 * picking
    }

    /// The first rows of those of `open`, the pipeline of `input`, in their order: the first `columns.len()` of `written`, over
    /// its scope. The keys of the order are columns of `written`.
    fn picked(
        &mut self,
        input: &RelRef,
        open: OpenPipeline,
        written: &[Expr],
        columns: Vec<ResultColumn>,
        first: FirstOf<'_>,
    ) -> ResultId {
        let number = ResultColumn {
            name: "row number".into(),
            data_type: DataType::UInt64,
            nullable: false,
        };
        let keys: Vec<Expr> = first
            .keys
            .iter()
            .filter_map(|key| written.get(key.column).cloned())
            .collect();
        let described = keys.iter().enumerate().map(|(i, key)| ResultColumn {
            name: format!("key {i}"),
            data_type: key.data_type.clone(),
            nullable: key.nullable,
        });
        let narrow = std::iter::once(number.clone()).chain(described).collect();
        let estimate = self.rows(input);
        let name = self.unique_name(format!("keys of {}", input.label()));
        let rows = self.result(ResultKind::Rows(narrow), estimate, name);
        let exprs = std::iter::once(Expr::row_number()).chain(keys).collect();
        self.close(
            open.clone(),
            Sink::Rows {
                into: rows,
                columns: exprs,
            },
        );
        let estimate = estimate.min(first.fetch);
        let name = self.unique_name(format!("first of {}", input.label()));
        let by = self.result(ResultKind::Sorted(vec![number]), estimate, name);
        let placed = first.keys.iter().enumerate().map(|(i, key)| SortKey {
            column: i + 1,
            ..*key
        });
        self.steps.push(Step::Sort(Sort {
            rows,
            keys: placed.collect(),
            skip: first.skip,
            fetch: Some(first.fetch),
            window: None,
            into: by,
        }));
        let name = self.unique_name("output".into());
        let width = columns.len();
        let into = self.result(ResultKind::Rows(columns), estimate, name);
        let picked = OpenPipeline {
            source: Source::Picked {
                of: Box::new(open.source),
                by,
            },
            // They have passed all conditions.
            stages: open.stages.into_iter().filter(appends).collect(),
            left: vec![],
            ..open
        };
        self.close(
            picked,
            Sink::Rows {
                into,
                columns: written[..width].to_vec(),
            },
        );
        into
    }
}

/// Does a stage add columns to the scope?
fn appends(stage: &Stage) -> bool {
    match stage {
        Stage::Filter(_) | Stage::Mark(_) => false,
        Stage::Scalar(_) => true,
        Stage::Probe(probe) | Stage::Expand(probe) => {
            probe.kind.appends_payload() || probe.kind == ProbeKind::Mark
        }
    }
}
