//! Programs written by hand, run on the emulator: room, retries, indexes, output.

mod failures;
mod outputs;
mod programs;
mod runs;
mod shapes;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::codegen::{
    Arguments, ColumnLayout, KernelProgram, Meaning, Program, Range, ResultLayout, Slot,
    SourceRows, StepProgram,
};
use crate::column::{StringPolicy, encode};
use crate::device::emulated::EmulatedDevice;
use crate::device::faulty::FaultyDevice;
use crate::error::Result;
use crate::exec::frame::execute::{Finished, execute};
use crate::exec::frame::results::Frame;
use crate::exec::output::host::Host;
use crate::exec::prepare::prepared::Prepared;
use crate::graph::{Graph, ResultColumn, ResultId, ResultKind, ResultSpec};
use crate::pipeline::ScanSource;
use crate::runtime::Runtime;
use crate::tables::{LoadedTable, TableSource};

/// A runtime on the emulator with a budget in bytes, and its device, which can be made to fail.
pub(super) fn runtime(budget: usize) -> (Arc<Runtime>, Arc<FaultyDevice>) {
    let device = FaultyDevice::new(Arc::new(EmulatedDevice::open().unwrap()));
    let runtime = Runtime::with_device(device.clone(), Some(budget)).unwrap();
    (runtime, device)
}

/// A resident table of columns.
pub(super) fn table(runtime: &Runtime, columns: &[ArrayRef]) -> Arc<LoadedTable> {
    let stream = runtime.device().create_stream().unwrap();
    let encoded = columns
        .iter()
        .map(|array| {
            let policy = StringPolicy::AlwaysDictionary;
            Arc::new(encode(array, policy, runtime.pool(), &stream).unwrap())
        })
        .collect();
    Arc::new(LoadedTable {
        rows: columns[0].len(),
        columns: encoded,
        load_ms: 0.0,
        bytes_uploaded: 0,
        columns_loaded: columns.len(),
        ..LoadedTable::default()
    })
}

/// A column of 32-bit codes without a base.
pub(super) fn u32_layout() -> ColumnLayout {
    ColumnLayout {
        data_type: DataType::UInt32,
        width: 4,
        float: false,
        base: 0,
        range: Range::new(0, u32::MAX.into()),
        meaning: Meaning::Number,
        nullable: false,
    }
}

/// One kernel; `sizes` and `pointers` become the fields of `Args` in this order, pointers with their type.
pub(super) fn kernel(
    source_rows: SourceRows,
    into: Option<ResultId>,
    sizes: &[Slot],
    pointers: &[(Slot, &'static str)],
    body: &str,
) -> KernelProgram {
    let mut arguments = Arguments::default();
    for size in sizes {
        arguments.size(*size);
    }
    for (slot, c_type) in pointers {
        arguments.pointer(*slot, *c_type);
    }
    let declaration = arguments.declaration("Args");
    KernelProgram {
        source: format!(
            "#include \"simt.cuh\"\n#include \"primitives.cuh\"\n#include \"pipeline.cuh\"\n\
             #include \"join.cuh\"\n{declaration}\
             WL_KERNEL(by_hand, Args, args) {{\n\
               const u64 stride = (u64)gridDim.x * blockDim.x;\n\
               const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n{body}\n}}\n"
        ),
        entry: "by_hand",
        arguments,
        lookups: vec![],
        shared_bytes: 0,
        source_rows,
        block_threads: crate::codegen::BLOCK_THREADS,
        tile_rows: 256,
        tree: None,
        into,
        in_place: false,
        scan_columns: vec![0],
        label: "by hand".into(),
    }
}

/// Spec of a result with `columns` unsigned columns.
pub(super) fn spec(
    name: &str,
    estimate: u64,
    kind: fn(Vec<ResultColumn>) -> ResultKind,
) -> ResultSpec {
    let column = ResultColumn {
        name: "x".into(),
        data_type: DataType::UInt32,
        nullable: false,
    };
    ResultSpec {
        kind: kind(vec![column]),
        estimate,
        input: estimate,
        enough: None,
        name: name.into(),
    }
}

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("x", DataType::UInt32, false)]))
}

/// A program by hand, prepared for its tables.
pub(super) struct Case {
    pub(super) runtime: Arc<Runtime>,
    pub(super) device: Arc<FaultyDevice>,
    pub(super) tables: Vec<Arc<LoadedTable>>,
    pub(super) prepared: Prepared,
}

impl Case {
    pub(super) fn new(
        budget: usize,
        columns: &[ArrayRef],
        specs: Vec<ResultSpec>,
        layouts: Vec<ResultLayout>,
        steps: Vec<StepProgram>,
        output: ResultId,
    ) -> Self {
        let (runtime, device) = runtime(budget);
        let tables: Vec<_> = columns
            .iter()
            .map(|c| table(&runtime, std::slice::from_ref(c)))
            .collect();
        let graph = Graph {
            scans: columns.iter().map(|_| no_scan()).collect(),
            results: specs,
            steps: vec![],
            output,
            schema: schema(),
            tree: crate::graph::TreeOptions::default(),
            keep_indexes: false,
            parts: crate::graph::Parts::Never,
            group_room: None,
            lists: vec![],
        };
        let program = Program {
            hidden: vec![],
            results: layouts,
            steps,
            bases: vec![],
            choices: vec![],
        };
        let stream = runtime.device().create_stream().unwrap();
        let prepared = Prepared::new(
            graph,
            Default::default(),
            program,
            &tables,
            None,
            &runtime,
            &stream,
        )
        .unwrap();
        Self {
            runtime,
            device,
            tables,
            prepared,
        }
    }

    /// One run.
    pub(super) fn run(&self) -> Result<Finished<RecordBatch>> {
        assert!(self.prepared.fits(&self.tables));
        let stream = self.runtime.lease_stream().unwrap();
        let to_host = |frame: &Frame<'_>, host: &Host| host.batch(frame, &schema());
        execute(&self.runtime, &stream, &self.prepared, &to_host, true)
    }

    /// A first run, which reads sizes, and a second one, which does not; both have these values, in any order.
    pub(super) fn check_twice(&self, expected: &[u32]) {
        for reads_sizes in [true, false] {
            let finished = self.run().unwrap();
            assert_eq!(finished.reads_sizes, reads_sizes);
            assert_eq!(
                values(&finished.output),
                expected,
                "reads_sizes: {reads_sizes}"
            );
        }
    }
}

/// The one column, ascending.
pub(super) fn values(batch: &RecordBatch) -> Vec<u32> {
    let column = batch.column(0);
    let column = column.as_any().downcast_ref::<UInt32Array>().unwrap();
    let mut values = column.values().to_vec();
    values.sort_unstable();
    values
}

/// A scan that nothing reads: the tables are resident already.
fn no_scan() -> ScanSource {
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::empty::EmptyExec;
    let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema()));
    ScanSource {
        table: TableSource::analyze(&plan).unwrap().source,
        columns: vec![0],
        fields: schema().fields().iter().cloned().collect(),
        name: "by hand".into(),
        needs_codes: vec![],
    }
}

/// Numbers from 0 on as a column whose codes take 4 bytes.
pub(super) fn numbers(rows: u32) -> ArrayRef {
    // The last value keeps the width at four bytes.
    let values = (0..rows).chain([u32::MAX]);
    Arc::new(UInt32Array::from_iter_values(values))
}
