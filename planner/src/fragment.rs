//! The planner of one fragment: its relation, and its graph once the tables are resident.

mod facts;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::GpuError;
use warpline_gpu::column::Encoding;
use warpline_gpu::device::DeviceInfo;
use warpline_gpu::graph::{
    Fingerprint, FirstRun, Graph, IndexChoice, IndexProfile, Parts, Policy, RefillProfile,
};
use warpline_gpu::machine::Machine;
use warpline_gpu::memory::Budget;
use warpline_gpu::parquet::ParquetReader;
use warpline_gpu::pipeline::{GroupProfile, PlacementChoice, PlacementPolicy, ScanSource};
use warpline_gpu::tables::{LoadedTable, TableCache};

pub(crate) use self::facts::InputRows;
pub(crate) use self::facts::NoFacts;
use self::facts::{PlanTimeFacts, ResidentFacts};
use crate::choose::cold::first_run;
use crate::choose::reentry;
use crate::choose::refill;
use crate::choose::rowwise::{Prices, Traffic, bytes_of, prices};
use crate::choose::tree::TreeChoice;
use crate::choose::{CostedPolicy, index};
use crate::config::{IndexJoins, JoinSetting, LaneRefill, LateColumns, RangeJoins, WarplineConfig};
use crate::lower::Lowering;
use crate::order::optimize;
use crate::reason::Reason;
use crate::rel::anti_joins::with_anti_joins;
use crate::rel::codes::coded;
use crate::rel::combinations;
use crate::rel::convert::{Inputs, Refusal, convert};
use crate::rel::fingerprint::fingerprint;
use crate::rel::first_rows::with_first_rows;
use crate::rel::rewrite::{with_shared_tables, without_inner_orders};
use crate::rel::{RelKind, RelRef, ScanTable};
use crate::stats::{Estimator, TableFacts};
use crate::translate::is_string;

/// The plan of a fragment. Its graph is made when its tables are resident, from their exact statistics.
#[derive(Debug)]
pub struct FragmentPlanner {
    rel: RelRef,
    schema: SchemaRef,
    /// The tables of `scans`.
    tables: Vec<Arc<ScanTable>>,
    scans: Vec<ScanSource>,
    /// The same with more dictionary codes, once those of `scans` turned out too few: first those that the plan
    /// needs, then all.
    reloaded: [OnceLock<Vec<ScanSource>>; 2],
    /// Once it was asked for.
    fingerprint: OnceLock<Arc<Fingerprint>>,
    groups: CostedPolicy,
    join: JoinSetting,
    parts: Parts,
    shape: TreeChoice,
    index_joins: IndexJoins,
    range_joins: RangeJoins,
    late_columns: LateColumns,
    lane_refill: LaneRefill,
    /// The limit of device memory in bytes, when there is one.
    device_memory: Option<u64>,
    /// The device's constants, for prices; those of an H200 until [`Self::on`] sets others.
    machine: Arc<Machine>,
    /// Who decodes parquet files.
    parquet: ParquetReader,
    /// Over inputs, where prices decide: the threads that DataFusion runs a query on.
    priced_for: Option<usize>,
}

impl FragmentPlanner {
    /// The fragment that computes what `plan` computes.
    ///
    /// # Errors
    /// The operator that prevents it, with the reason.
    pub fn try_new(
        plan: &Arc<dyn ExecutionPlan>,
        config: &WarplineConfig,
    ) -> Result<Self, Refusal> {
        Self::over_inputs(plan, &Inputs::default(), config)
    }

    /// The fragment that computes what `plan` computes, over rows of `inputs` that the CPU computes.
    ///
    /// # Errors
    /// As [`Self::try_new`].
    pub fn over_inputs(
        plan: &Arc<dyn ExecutionPlan>,
        inputs: &Inputs,
        config: &WarplineConfig,
    ) -> Result<Self, Refusal> {
        let rel = convert(plan, inputs, config)?;
        Self::of(rel, plan.schema(), config).map_err(|reason| Refusal {
            at: Arc::clone(plan),
            reason,
        })
    }

    /// The fragment that computes `rel`.
    ///
    /// # Errors
    /// The reason why no graph computes it.
    pub fn of(rel: RelRef, schema: SchemaRef, config: &WarplineConfig) -> Result<Self, Reason> {
        let rel = without_inner_orders(&rel);
        let rel = with_first_rows(&rel);
        let anti = with_anti_joins(&rel);
        // Not every function takes a constant NULL in place of a column.
        match Self::over(anti, Arc::clone(&schema), config) {
            Err(_) => Self::over(rel, schema, config),
            planner => planner,
        }
    }

    fn over(rel: RelRef, schema: SchemaRef, config: &WarplineConfig) -> Result<Self, Reason> {
        combinations::check(&rel, config.value_tables)?;
        let rel = with_shared_tables(&rel);
        let (tables, scans) = scans(&rel);
        let device_memory = (config.device_memory > 0).then_some(config.device_memory as u64);
        let machine = within(Arc::new(Machine::h200()), device_memory);
        let planner = Self {
            rel,
            schema,
            tables,
            scans,
            reloaded: Default::default(),
            fingerprint: OnceLock::new(),
            groups: CostedPolicy {
                group_by: config.group_by,
                slots: config.group_slots as u64,
                machine: Arc::clone(&machine),
            },
            join: config.join.algorithm,
            range_joins: config.range_joins,
            late_columns: config.late_columns,
            lane_refill: config.lane_refill,
            parts: match config.join.triton {
                true => Parts::Always,
                false => Parts::Never,
            },
            shape: TreeChoice::of(config),
            index_joins: config.index_joins,
            device_memory,
            machine,
            parquet: config.parquet,
            priced_for: None,
        };
        // What cannot be lowered is known before anything is loaded.
        planner.graph_with(&NoFacts, &HashSet::new())?;
        Ok(planner)
    }

    /// The same with the prices of a device.
    #[must_use]
    pub fn on(self, machine: Arc<Machine>) -> Self {
        let machine = within(machine, self.device_memory);
        let groups = CostedPolicy {
            machine: Arc::clone(&machine),
            ..self.groups
        };
        Self {
            groups,
            machine,
            ..self
        }
    }

    /// The same, which leaves the rows of its inputs to `cores` of the host where there turn out to be so many or so few that these
    /// are faster.
    #[must_use]
    pub fn priced_for(self, cores: usize) -> Self {
        Self {
            priced_for: Some(cores),
            ..self
        }
    }

    /// The relation that the fragment computes.
    pub fn rel(&self) -> &RelRef {
        &self.rel
    }

    /// The schema of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The setting of joins, and the constants to price them with.
    pub fn join_choice(&self) -> (JoinSetting, &Machine) {
        (self.join, &self.machine)
    }

    /// Does it look up what was evaluated by combination, which may turn out to be too much?
    pub(crate) fn combines(&self) -> bool {
        combinations::check(&self.rel, false).is_err()
    }

    /// Does it read columns that are computed of others?
    pub(crate) fn computes(&self) -> bool {
        let mut scans = self.scans.iter();
        scans.any(|scan| scan.columns.iter().any(|c| scan.table.is_computed(*c)))
    }

    /// Tables that the fragment scans.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Tables among them; the others are inputs.
    pub fn real_tables(&self) -> usize {
        let tables = self.tables.iter();
        tables
            .filter(|table| table.source.input().is_none())
            .count()
    }

    /// Rows of all scanned tables together, as far as their statistics are known.
    pub fn scanned_rows(&self) -> Option<usize> {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// The price of a fragment that only filters and computes, on the device and on `cores` of the host; `None` where
    /// it joins, groups or sorts. Resident tables have exact statistics and need not be loaded.
    pub(crate) fn prices(&self, resident: Option<&TableCache>, cores: usize) -> Option<Prices> {
        let loaded = self.resident(resident);
        let facts = self.facts(&loaded, InputRows::Times(1.0));
        prices(
            &self.rel,
            &Estimator::new(&facts),
            &self.traffic(&facts),
            &self.machine,
            cores,
        )
    }

    /// The price of what a fragment over inputs adds to them and to its tables, on the device and on `cores` of the host.
    pub(crate) fn reentry_prices(
        &self,
        resident: Option<&TableCache>,
        cores: usize,
        inputs: InputRows<'_>,
    ) -> Prices {
        let loaded = self.resident(resident);
        let facts = self.facts(&loaded, inputs);
        reentry::prices(
            &self.rel,
            &Estimator::new(&facts),
            &self.traffic(&facts),
            &self.machine,
            cores,
        )
    }

    /// By scan: the table, when it is resident.
    fn resident(&self, resident: Option<&TableCache>) -> Vec<Option<LoadedTable>> {
        let scans = self.scans.iter();
        let peek =
            |scan: &ScanSource| resident?.peek(&scan.table, &scan.columns, &scan.needs_codes);
        scans.map(peek).collect()
    }

    /// The statistics at planning time, over what is loaded of each scan.
    fn facts<'a>(
        &'a self,
        loaded: &'a [Option<LoadedTable>],
        inputs: InputRows<'a>,
    ) -> PlanTimeFacts<'a> {
        PlanTimeFacts {
            tables: &self.tables,
            scans: &self.scans,
            loaded,
            inputs,
        }
    }

    /// What is read of each scan.
    fn traffic(&self, facts: &PlanTimeFacts<'_>) -> Vec<Traffic> {
        let tables = self.tables.iter().zip(&self.scans).zip(facts.loaded);
        tables
            .map(|((table, scan), loaded)| {
                let rows = facts.rows(table);
                let widths = scan.fields.iter().map(|f| bytes_of(f.data_type()));
                let strings = scan.fields.iter().filter(|f| is_string(f.data_type()));
                Traffic {
                    rows,
                    columns: scan.columns.len() as f64,
                    strings: strings.count() as f64,
                    bytes: match loaded {
                        Some(table) => table.columns.iter().map(|c| c.bytes() as f64).sum(),
                        None => rows * widths.sum::<f64>(),
                    },
                    resident: loaded.is_some(),
                    kept: scan.table.is_cacheable(),
                    files: scan.table.is_of_files(),
                    by_device: scan.table.is_parquet()
                        && self.parquet != ParquetReader::Cpu
                        && !scan.columns.iter().any(|c| scan.table.is_computed(*c)),
                    input: scan.table.input().is_some(),
                }
            })
            .collect()
    }

    /// The graph over tables with the statistics `facts`.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn graph_with(
        &self,
        facts: &dyn TableFacts,
        duplicates: &HashSet<String>,
    ) -> Result<Graph, Reason> {
        let estimator = Estimator::new(facts).with_kept_indexes(self.index_joins, u64::MAX);
        let rel = optimize(&self.rel, &estimator)?;
        self.lower(&rel, &estimator, duplicates)
    }

    /// The graph of the optimised relation.
    fn lower(
        &self,
        rel: &RelRef,
        estimator: &Estimator<'_>,
        duplicates: &HashSet<String>,
    ) -> Result<Graph, Reason> {
        let scan_column = |kind: &RelKind, column: usize| {
            let RelKind::Scan { table, columns } = kind else {
                return None;
            };
            let scan = self.tables.iter().position(|t| Arc::ptr_eq(t, table))?;
            let Some(wanted) = columns.get(column) else {
                return Some((scan, 0));
            };
            let scanned = &self.scans[scan].columns;
            let position = scanned.iter().position(|c| c == wanted)?;
            Some((scan, position))
        };
        Lowering {
            scans: &self.scans,
            scan_column: &scan_column,
            estimator,
            duplicates,
            join: self.join,
            range_joins: self.range_joins,
            late_columns: self.late_columns,
            parts: self.parts,
            machine: &self.machine,
            join_room: self.machine.budget().join_state() as f64,
            shape: self.shape,
            keep_indexes: self.index_joins != IndexJoins::Off,
        }
        .graph(rel, Arc::clone(&self.schema))
    }
}

impl FragmentPlanner {
    /// Does `rel` need dictionary codes of string columns that have none? If so, later scans ask for them.
    fn needs_reload(&self, rel: &RelRef, tables: &[LoadedTable]) -> bool {
        let needed = coded(rel, false);
        let mut missing = false;
        let mut scans = self.scans().to_vec();
        for ((scan, table), loaded) in scans.iter_mut().zip(&self.tables).zip(tables) {
            for (position, column) in scan.columns.iter().enumerate() {
                let bytes = loaded
                    .columns
                    .get(position)
                    .is_some_and(|c| matches!(c.encoding, Encoding::Bytes { .. }));
                if bytes && needed.contains(&(Arc::as_ptr(table), *column)) {
                    missing = true;
                    if let Some(flag) = scan.needs_codes.get_mut(position) {
                        *flag = true;
                    }
                }
            }
        }
        // Over other columns the plan may become another, which needs others.
        missing && (self.reloaded[0].set(scans).is_ok() || self.ask_for_codes())
    }
}

/// One scan for each table, of all columns that any part of `rel` reads.
fn scans(rel: &RelRef) -> (Vec<Arc<ScanTable>>, Vec<ScanSource>) {
    let mut tables: Vec<Arc<ScanTable>> = Vec::new();
    let mut wanted: Vec<Vec<usize>> = Vec::new();
    rel.for_each(&mut |rel| {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return;
        };
        let at = tables
            .iter()
            .position(|t| Arc::ptr_eq(t, table))
            .unwrap_or_else(|| {
                tables.push(Arc::clone(table));
                wanted.push(Vec::new());
                tables.len() - 1
            });
        for column in columns {
            if !wanted[at].contains(column) {
                wanted[at].push(*column);
            }
        }
    });
    let coded = coded(rel, true);
    let scans = tables
        .iter()
        .zip(wanted)
        .map(|(table, columns)| {
            let source = table.source.clone();
            ScanSource {
                fields: columns
                    .iter()
                    .map(|i| Arc::clone(&source.schema().fields()[*i]))
                    .collect(),
                name: source.name().to_string(),
                needs_codes: columns
                    .iter()
                    .map(|i| coded.contains(&(Arc::as_ptr(table), *i)))
                    .collect(),
                columns,
                table: source,
            }
        })
        .collect();
    (tables, scans)
}

/// The machine with no more device memory than the limit.
fn within(machine: Arc<Machine>, limit: Option<u64>) -> Arc<Machine> {
    let budget = Budget::within(machine.memory as u64, limit);
    match budget == machine.budget() {
        true => machine,
        false => Arc::new(Machine {
            memory: budget.bytes() as f64,
            ..Machine::clone(&machine)
        }),
    }
}

impl PlacementPolicy for FragmentPlanner {
    fn place_groups(&self, profile: &GroupProfile, device: &DeviceInfo) -> PlacementChoice {
        self.groups.place_groups(profile, device)
    }
}

impl Policy for FragmentPlanner {
    fn scans(&self) -> &[ScanSource] {
        let [needed, all] = &self.reloaded;
        let scans = all.get().or_else(|| needed.get());
        scans.unwrap_or(&self.scans)
    }

    fn ask_for_codes(&self) -> bool {
        let mut scans = self.scans().to_vec();
        let mut more = false;
        for scan in &mut scans {
            for (field, codes) in scan.fields.iter().zip(&mut scan.needs_codes) {
                more |= is_string(field.data_type()) && !*codes;
                *codes |= is_string(field.data_type());
            }
        }
        more && self.reloaded[1].set(scans).is_ok()
    }

    fn graph(
        &self,
        tables: &[LoadedTable],
        duplicates: &HashSet<String>,
        index_room: u64,
    ) -> warpline_gpu::Result<Graph> {
        let facts = ResidentFacts {
            tables: &self.tables,
            scans: &self.scans,
            loaded: tables,
        };
        let unsupported = |reason: Reason| GpuError::Unsupported(reason.to_string());
        let estimator = Estimator::new(&facts).with_kept_indexes(self.index_joins, index_room);
        let rel = optimize(&self.rel, &estimator).map_err(unsupported)?;
        if self.needs_reload(&rel, tables) {
            return Err(GpuError::ReloadScans);
        }
        self.lower(&rel, &estimator, duplicates)
            .map_err(unsupported)
    }

    fn declines(&self, inputs: &[usize], tables: &TableCache) -> Option<String> {
        let prices =
            self.reentry_prices(Some(tables), self.priced_for?, InputRows::Counted(inputs));
        let rows: usize = inputs.iter().sum();
        (!prices.pays()).then(|| {
            format!(
                "taking {rows} rows to the device costs more than to go on without it: {prices}"
            )
        })
    }

    fn place_index(&self, profile: &IndexProfile, _device: &DeviceInfo) -> IndexChoice {
        index::place(self.join, profile, self.machine.budget())
    }

    fn refill(&self, profile: &RefillProfile) -> Option<usize> {
        refill::after(self.lane_refill, profile)
    }

    fn first_run(&self, tables: &TableCache) -> Option<FirstRun> {
        let loaded = self.resident(Some(tables));
        let facts = self.facts(&loaded, InputRows::Times(1.0));
        let traffic = self.traffic(&facts);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let estimator = Estimator::new(&facts);
        Some(first_run(
            &self.rel,
            &estimator,
            &traffic,
            &self.machine,
            cores,
        ))
    }

    fn fingerprint(&self) -> Option<Arc<Fingerprint>> {
        let made = || Arc::new(fingerprint(&self.rel, &self.tables));
        Some(Arc::clone(self.fingerprint.get_or_init(made)))
    }

    fn describe(&self) -> String {
        self.rel.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_go_by_the_limit_and_not_by_the_card() {
        let card = Arc::new(Machine::h200());
        assert!(Arc::ptr_eq(&within(Arc::clone(&card), None), &card));
        assert!(Arc::ptr_eq(
            &within(Arc::clone(&card), Some(1 << 50)),
            &card
        ));
        let limited = within(card, Some(16 << 30));
        assert_eq!(limited.budget(), Budget::of(16 << 30));
        assert_eq!(limited.budget().perfect_index(), 4 << 30);
    }
}
