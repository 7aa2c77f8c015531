//! Levels of a tree-shaped pipeline: where its steps are cut, and what a node carries from one level to the next.
//!
//! A level ends behind every step that drops rows or yields many: a visit of a level is one warp iteration, so that between
//! two visits a warp's nodes can come together (Themis, section 5). A node of a level carries what later levels need of the
//! rows and entries above it: their numbers, or with eager materialisation the values.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::algorithm::{Balance, Materialization};
use crate::codegen::ir::pipeline::{EmittedProbe, EmittedSink, EmittedStep};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::value::Meaning;
use crate::codegen::kernel::loads::storage_type;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::column::Encoding;
use crate::error::Result;
use crate::graph::{ProbeKind, TreeOptions};

/// Levels from which on steps that drop rows no longer begin a new one: queues live in shared memory.
const MOST_LEVELS: usize = 8;

/// One level: steps for a node, and why the level ends.
pub(in crate::codegen) struct Level {
    /// The probe whose matches are the nodes.
    pub(in crate::codegen) entered_by: Option<EmittedProbe>,
    pub(in crate::codegen) steps: Vec<EmittedStep>,
    /// Text of what a node carries into this level.
    pub(in crate::codegen) carried: Vec<Field>,
}

/// Something that a node carries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::codegen) enum Carried {
    /// The number of the source's row.
    Row,
    /// The entry that a probe found.
    Entry(usize),
    /// Whether a probe found one.
    Hit(usize),
    /// The raw value of a column.
    Value(usize),
    /// Whether it is not NULL.
    Valid(usize),
}

/// A member of a level's queue.
pub(in crate::codegen) struct Field {
    pub(in crate::codegen) what: Carried,
    pub(in crate::codegen) name: String,
    pub(in crate::codegen) c_type: String,
    pub(in crate::codegen) bytes: u64,
}

/// What a level's text needs to know of probes: by number, the level in which its entry is known, and its kind.
pub(in crate::codegen) struct Probes(pub(in crate::codegen) Vec<(usize, ProbeKind)>);

impl KernelWriter<'_> {
    /// The steps, cut into levels. The probe of a `Matches` sink stays with the sink.
    pub(in crate::codegen) fn levels(&mut self) -> (Vec<Level>, Probes) {
        let of_sink = match self.pipeline.sink {
            EmittedSink::Matches { probe, .. } => Some(probe),
            _ => None,
        };
        let steps = std::mem::take(&mut self.pipeline.steps);
        let expanding = steps
            .iter()
            .filter(|s| matches!(s, EmittedStep::Expand(_)))
            .count();
        let mut room = MOST_LEVELS.saturating_sub(1 + expanding);
        let mut levels = vec![Level::new(None)];
        let mut probes = Probes(vec![]);
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            let here = levels.len() - 1;
            let cut = match &step {
                EmittedStep::Filter(_) => !matches!(steps.peek(), Some(EmittedStep::Filter(_))),
                EmittedStep::Probe(probe) => {
                    probes.0.push((here, probe.kind));
                    Some(probe.number) != of_sink
                        && !matches!(probe.kind, ProbeKind::Left | ProbeKind::Mark)
                }
                EmittedStep::Mark(_) => false,
                EmittedStep::Expand(probe) => {
                    probes.0.push((here + 1, probe.kind));
                    false
                }
            };
            let Some(last) = levels.last_mut() else {
                continue;
            };
            match step {
                EmittedStep::Expand(probe) => {
                    // What remains to be tested of a match drops rows as a filter does.
                    let tested = probe.residual.is_some();
                    levels.push(Level::new(Some(probe)));
                    if tested && room > 0 {
                        room -= 1;
                        levels.push(Level::new(None));
                    }
                }
                step => {
                    last.steps.push(step);
                    if cut && room > 0 {
                        room -= 1;
                        levels.push(Level::new(None));
                    }
                }
            }
        }
        (levels, probes)
    }

    /// Decide what the nodes of each level carry: what it or a later level needs of what came before.
    pub(in crate::codegen) fn carry(
        &mut self,
        levels: &mut [Level],
        probes: &Probes,
        options: TreeOptions,
    ) -> Result<()> {
        let eager = options.materialization == Materialization::Eager;
        let wide_rows = self.pipeline.bound > u64::from(u32::MAX);
        let mut wanted: BTreeSet<usize> = BTreeSet::new();
        for l in (1..levels.len()).rev() {
            wanted.extend(columns_of_level(levels, l));
            if l == levels.len() - 1 {
                wanted.extend(self.pipeline.sink_columns.iter().copied());
            }
            let mut carried = BTreeSet::new();
            for &column in &wanted {
                let needs = self.needs(column, probes);
                // The level in which the value can be read first.
                let known = needs
                    .iter()
                    .map(|what| probes.known(what))
                    .max()
                    .unwrap_or(0);
                if known >= l && !needs.is_empty() {
                    // Of an entry that this level or a later one finds: what leads there is needed by its probe.
                    carried.extend(needs.into_iter().filter(|what| probes.known(what) < l));
                    continue;
                }
                if eager && self.is_value(column) {
                    carried.insert(Carried::Value(column));
                    if self.pipeline.scope[column].nullable {
                        carried.insert(Carried::Valid(column));
                    }
                } else {
                    carried.extend(needs);
                }
            }
            let mut fields: Vec<Field> = carried
                .into_iter()
                .map(|what| self.field(what, wide_rows))
                .collect();
            // Widest first: nothing to pad.
            fields.sort_by_key(|f| std::cmp::Reverse(f.bytes));
            levels[l].carried = fields;
        }
        Ok(())
    }

    /// What must be known of a node to read a column.
    fn needs(&self, column: usize, probes: &Probes) -> Vec<Carried> {
        let Some(column) = self.pipeline.scope.get(column) else {
            return vec![];
        };
        if let Shape::Mask(mask) = &column.shape {
            return numbered(mask, 'h').map(Carried::Hit).into_iter().collect();
        }
        if column.is_constant() {
            return vec![];
        }
        match &column.access {
            Access::Scan | Access::Direct { .. } | Access::Lines(_) => vec![Carried::Row],
            Access::Gather { entry, .. } => match numbered(entry, 'e') {
                // Whether an outer probe found an entry is told by the entry.
                Some(probe) if probe < probes.0.len() => vec![Carried::Entry(probe)],
                _ => vec![Carried::Row],
            },
            Access::Broadcast { .. } | Access::None => vec![],
        }
    }

    /// Can a node carry the column's value? Strings by row are their row.
    fn is_value(&self, column: usize) -> bool {
        let column = &self.pipeline.scope[column];
        if column.is_constant() {
            return false;
        }
        match (&column.shape, &column.access) {
            (_, Access::Broadcast { .. } | Access::None) | (Shape::Mask(_), _) => false,
            (Shape::Resident(resident), _) => !matches!(resident.encoding, Encoding::Bytes { .. }),
            (Shape::Stored(layout), _) => {
                !matches!(layout.meaning, Meaning::Row(_)) || layout.width <= 8
            }
            (Shape::Computed { .. }, _) => true,
        }
    }

    /// What a node carries, as the variables that the text of steps knows: from place `slot` of `queue` (C++).
    pub(in crate::codegen) fn unpack(&mut self, level: &Level, probes: &Probes, queue: &str) {
        for field in &level.carried {
            let from = format!("{queue}.{}[slot]", field.name);
            match &field.what {
                Carried::Row => line!(self, "    const u64 row = live != 0 ? (u64){from} : 0ull;"),
                Carried::Entry(p) => {
                    line!(self, "    u32 e{p}[1] = {{live != 0 ? {from} : 0u}};");
                    let hit = match probes.outer(*p) {
                        true => format!("e{p}[0] != WL_NO_ENTRY ? live : 0u"),
                        false => "live".to_string(),
                    };
                    line!(self, "    const u32 h{p} = {hit}; (void)h{p};");
                }
                Carried::Hit(p) => line!(self, "    const u32 h{p} = live != 0 ? {from} : 0u;"),
                Carried::Value(i) => {
                    self.loaded.push(*i);
                    let t = &field.c_type;
                    if is_mask(&self.pipeline.scope[*i]) {
                        line!(self, "    {t} c{i} = live != 0 ? {from} : ({t})0;");
                    } else {
                        line!(self, "    {t} c{i}[1] = {{live != 0 ? {from} : ({t})0}};");
                    }
                }
                Carried::Valid(i) => line!(self, "    u32 n{i} = live != 0 ? {from} : 0u;"),
            }
        }
    }

    /// C++ text of what a node carries of row `k` (C++) of the thread.
    pub(in crate::codegen) fn carried(&self, field: &Field, probes: &Probes, k: &str) -> String {
        let of_row = |mask: String| match k {
            "0" => mask,
            _ => format!("({mask} >> {k} & 1u)"),
        };
        match &field.what {
            Carried::Row if k == "0" => format!("({})row", field.c_type),
            Carried::Row => format!("({})(row + {k})", field.c_type),
            Carried::Entry(p) => match probes.outer(*p) {
                true => format!("{} != 0 ? e{p}[{k}] : WL_NO_ENTRY", of_row(format!("h{p}"))),
                false => format!("e{p}[{k}]"),
            },
            Carried::Hit(p) => of_row(format!("h{p}")),
            Carried::Value(i) if is_mask(&self.pipeline.scope[*i]) => of_row(format!("c{i}")),
            Carried::Value(i) => format!("c{i}[{k}]"),
            Carried::Valid(i) => of_row(format!("n{i}")),
        }
    }

    fn field(&self, what: Carried, wide_rows: bool) -> Field {
        let (name, c_type, bytes) = match &what {
            Carried::Row if wide_rows => ("row".to_string(), "u64".to_string(), 8),
            Carried::Row => ("row".to_string(), "u32".to_string(), 4),
            Carried::Entry(p) => (format!("e{p}"), "u32".to_string(), 4),
            Carried::Hit(p) => (format!("h{p}"), "u32".to_string(), 4),
            Carried::Valid(i) => (format!("n{i}"), "u32".to_string(), 4),
            Carried::Value(i) => {
                let (c_type, bytes) = raw_type(&self.pipeline.scope[*i]);
                (format!("c{i}"), c_type, bytes)
            }
        };
        Field {
            what,
            name,
            c_type,
            bytes,
        }
    }
}

impl Level {
    pub(in crate::codegen) fn new(entered_by: Option<EmittedProbe>) -> Self {
        Self {
            entered_by,
            steps: vec![],
            carried: vec![],
        }
    }

    /// Is an entry of its queue a range of nodes?
    pub(in crate::codegen) fn ranges(&self, options: TreeOptions) -> bool {
        self.entered_by.is_some() && options.balance != Balance::None
    }

    /// Words of an entry of its queue.
    pub(in crate::codegen) fn words(&self, l: usize, options: TreeOptions) -> u64 {
        let ranges = if l > 0 && self.ranges(options) { 2 } else { 0 };
        let fields = self.carried.iter().map(|f| f.bytes.div_ceil(4));
        ranges + fields.sum::<u64>()
    }
}

/// Scope columns that the steps of level `l` read, and the keys that are looked up at its end.
fn columns_of_level(levels: &[Level], l: usize) -> Vec<usize> {
    let level = &levels[l];
    let mut columns = Vec::new();
    if let Some(residual) = level.entered_by.as_ref().and_then(|p| p.residual.as_ref()) {
        columns.extend(&residual.columns);
    }
    for step in &level.steps {
        match step {
            EmittedStep::Filter(test) => columns.extend(&test.columns),
            EmittedStep::Mark(_) => {}
            EmittedStep::Probe(probe) | EmittedStep::Expand(probe) => {
                columns.extend(&probe.columns);
                if let Some(residual) = &probe.residual {
                    // What only the residual sees of the entry is found by the probe itself.
                    let hidden = probe.payload.0..probe.payload.0 + probe.hidden.len();
                    columns.extend(residual.columns.iter().filter(|c| !hidden.contains(c)));
                }
            }
        }
    }
    if let Some(probe) = levels.get(l + 1).and_then(|next| next.entered_by.as_ref()) {
        columns.extend(&probe.columns);
    }
    columns
}

impl Probes {
    /// Is this an outer probe, which may have found nothing?
    pub(in crate::codegen) fn outer(&self, probe: usize) -> bool {
        matches!(self.0.get(probe), Some((_, ProbeKind::Left)))
    }

    /// The level in which something can be known first.
    fn known(&self, what: &Carried) -> usize {
        match what {
            Carried::Entry(p) | Carried::Hit(p) => self.0.get(*p).map_or(0, |(level, _)| *level),
            _ => 0,
        }
    }
}

/// The number behind a letter: 3 of `e3`.
fn numbered(name: &str, letter: char) -> Option<usize> {
    name.strip_prefix(letter)?.parse().ok()
}

/// Is the column's raw value a mask of bits, one a row, not an array?
pub(in crate::codegen) fn is_mask(column: &ScopeColumn) -> bool {
    matches!((&column.shape, &column.access), (Shape::Resident(r), Access::Scan) if matches!(r.encoding, Encoding::Bits))
}

/// C++ type and bytes of a column's raw value.
fn raw_type(column: &ScopeColumn) -> (String, u64) {
    let sized = |t: &str| {
        let bytes = match t {
            "u8" | "bool" => 1,
            "u16" => 2,
            "u32" | "i32" | "f32" => 4,
            "i128" | "u128" => 16,
            _ => 8,
        };
        (t.to_string(), bytes)
    };
    match &column.shape {
        Shape::Stored(layout) => sized(layout.storage()),
        Shape::Computed { c_type, .. } => sized(c_type.name()),
        Shape::Mask(_) => sized("u32"),
        Shape::Resident(resident) => sized(match &resident.encoding {
            Encoding::Bits => "u32",
            encoding => storage_type(encoding).unwrap_or("u64"),
        }),
    }
}
