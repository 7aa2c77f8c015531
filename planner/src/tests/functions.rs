//! The page of functions: what runs where is found by planning a small call of each, not listed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ToDFSchema};
use datafusion::execution::FunctionRegistry;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::prelude::SessionContext;
use warpline_gpu::expr::{Expr, Node};

use super::{any_size, schema, session};
use crate::fragment::FragmentPlanner;
use crate::rel::expr::children;
use crate::statements::synonyms;
use crate::translate::{Scope, translate};

const PREFACE: &str = "\
# Functions

Every function of DataFusion's session that takes a column of simple values, of lists or of maps, and where it runs. A test plans a small call of each \
over every type that it takes and writes what it finds; `EXPLAIN` shows the reasons for a query at hand.

* **device**: computed for each row by a kernel.
* **by table**: DataFusion evaluates it once per distinct string (of characters or bytes), list or map of a column, or once per combination of the values of \
several columns, and the device looks the results up: strings in dictionaries, Booleans, integers, dates and seconds of a \
small range (at most 2^20 combinations). Of long strings that lie as bytes, comparisons, LIKE, lengths, positions and short \
substrings run on the bytes instead, and one string is sought in another one (LIKE, `strpos`, `contains`, `starts_with`, `ends_with`) \
however many pairs there are. Of more values it is a computed column of its table, or answered by the CPU (see TUNING.md).
* **CPU**: DataFusion's own. In the output of a query it is evaluated as rows leave the device, from its arguments.

";

/// A column of each kind of type.
const KINDS: [(&str, &str); 10] = [
    ("text", "s"),
    ("bytes", "x"),
    ("integer", "b"),
    ("decimal", "price"),
    ("float", "f"),
    ("boolean", "flag"),
    ("date", "day"),
    ("timestamp", "at"),
    ("list", "l"),
    ("map", "m"),
];

/// Arguments to try, `{x}` being a column of a kind; the first that DataFusion takes is planned.
const ARGUMENTS: [&str; 23] = [
    "{x}",
    "{x}, {x}",
    "{x}, a",
    "{x}, u",
    "{x}, f",
    "{x}, 2",
    "{x}, a, a",
    "{x}, u, u",
    "{x}, a, u",
    "{x}, u, a",
    "{x}, {x}, {x}",
    "{x}, u, a, a",
    "'year', {x}",
    "INTERVAL '1 day', {x}",
    "{x}, '%Y'",
    "{x}, 'x'",
    "{x}, 'x', 2",
    "{x}, 1, 2",
    "{x}, 1, 2, 3",
    "{x}, 'sha256'",
    "{x}, 'hex'",
    "{x}, 'Int32'",
    "{x}, 'Utf8'",
];

/// Where a call runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Device,
    Table,
    Cpu(String),
}

fn state_of(expr: &Expr) -> State {
    let looked_up = |expr: &Expr| {
        matches!(
            expr.node,
            Node::PerDistinct { .. } | Node::PerCombination { .. }
        )
    };
    let mut all = vec![expr];
    while let Some(expr) = all.pop() {
        if looked_up(expr) {
            return State::Table;
        }
        all.extend(children(expr));
    }
    State::Device
}

/// Is a column of the call cast to a type that the function takes? Then it is not a function of the column's type.
fn casts(expr: &Arc<dyn PhysicalExpr>, name: &str) -> bool {
    let cast = |e: &Arc<dyn PhysicalExpr>| {
        let cast = e.downcast_ref::<CastExpr>();
        let of = cast.and_then(|cast| cast.expr().downcast_ref::<Column>());
        of.is_some_and(|column| column.name() == name)
    };
    expr.exists(|e| Ok(cast(e))).unwrap()
}

/// The state of a scalar function by kind of its first column.
fn scalar(context: &SessionContext, name: &str, schema: &DFSchema) -> Vec<(&'static str, State)> {
    let state = context.state();
    let mut found = Vec::new();
    for (kind, column) in KINDS {
        for arguments in ARGUMENTS {
            let sql = format!("{name}({})", arguments.replace("{x}", column));
            let Ok(logical) = state.create_logical_expr(&sql, schema) else {
                continue;
            };
            let Ok(physical) = state.create_physical_expr(logical, schema) else {
                continue;
            };
            if casts(&physical, column) {
                continue;
            }
            let arrow = schema.as_arrow();
            found.push(match translate(&physical, &mut Scope::new(arrow)) {
                Ok(expr) => (kind, state_of(&expr)),
                Err(reason) => (kind, State::Cpu(reason.to_string())),
            });
            break;
        }
    }
    found
}

/// By kind, the best state among those of `calls` that DataFusion plans: other calls may be of arguments that make no sense.
async fn planned(context: &SessionContext, calls: &[String]) -> Vec<(&'static str, State)> {
    let mut found = Vec::new();
    for (kind, column) in KINDS {
        let mut best = None;
        for call in calls {
            let call = call.replace("{x}", column);
            let Ok(frame) = context.sql(&format!("SELECT {call} FROM t")).await else {
                continue;
            };
            let Ok(plan) = frame.create_physical_plan().await else {
                continue;
            };
            match FragmentPlanner::try_new(&plan, &any_size()) {
                Ok(_) => {
                    best = Some(State::Device);
                    break;
                }
                Err(refusal) => {
                    best.get_or_insert(State::Cpu(refusal.reason.to_string()));
                }
            }
        }
        found.extend(best.map(|state| (kind, state)));
    }
    found
}

/// A line of a table: the kinds on the device, those by table, those on the CPU with one of the reasons.
fn line(name: &str, found: &[(&str, State)]) -> String {
    let kinds = |wanted: &dyn Fn(&State) -> bool| {
        let all = found.iter().filter(|(_, state)| wanted(state));
        all.map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ")
    };
    let mut cpu: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, state) in found {
        if let State::Cpu(reason) = state {
            cpu.entry(reason).or_default().push(kind);
        }
    }
    let cpu: Vec<String> = cpu
        .into_iter()
        .map(|(reason, kinds)| format!("{} ({})", kinds.join(", "), reason.replace('|', "\\|")))
        .collect();
    format!(
        "| `{name}` | {} | {} | {} |\n",
        kinds(&|state| *state == State::Device),
        kinds(&|state| *state == State::Table),
        cpu.join("; ")
    )
}

/// Of the functions of structs.
const FIELDS: &str = " The fields that `get_field` takes out of a table's structs are columns of their own there, and the device reads those.";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_functions_says_where_each_runs() {
    let context = session(None, any_size());
    let state = context.state();
    let of_fields: DFSchema = schema().to_dfschema().unwrap();
    let mut page = PREFACE.to_string();

    page.push_str(
        "## Scalar functions\n\n| function | device | by table | CPU |\n|---|---|---|---|\n",
    );
    let functions = state.scalar_functions().values();
    let names: BTreeSet<String> = functions.map(|f| f.name().to_string()).collect();
    let mut others = Vec::new();
    for name in &names {
        let found = scalar(&context, name, &of_fields);
        match found.is_empty() {
            true => others.push(format!("`{name}`")),
            false => page.push_str(&line(name, &found)),
        }
    }
    let _ = write!(
        page,
        "\nConstants, and functions of structs and other types that stay on the CPU: {}.{FIELDS}\n",
        others.join(", ")
    );

    let heading = "| function | device | | CPU |\n|---|---|---|---|\n";
    let _ = write!(
        page,
        "\n## Aggregate functions\n\n`array_agg` and `string_agg` are put together by the host for the rows of an answer: what is computed \
         of them, and what is above that, runs on the CPU.\n\n{heading}"
    );
    for name in context.udafs().into_iter().collect::<BTreeSet<_>>() {
        if state.aggregate_functions()[&name].name() != name {
            continue;
        }
        let calls = [
            format!("{name}({{x}})"),
            format!("{name}({{x}}, ',')"),
            format!("{name}({{x}}, f)"),
            format!("{name}({{x}}, 0.5)"),
            format!("{name}(0.5) WITHIN GROUP (ORDER BY {{x}})"),
            format!("{name}({{x}}, f, 0.5)"),
            format!("{name}({{x}}, 2)"),
        ];
        let found = planned(&context, &calls).await;
        page.push_str(&line(&name, &found));
    }

    let _ = write!(
        page,
        "\n## Window functions\n\nOver `PARTITION BY a ORDER BY b`.\n\n{heading}"
    );
    for name in context.udwfs().into_iter().collect::<BTreeSet<_>>() {
        if state.window_functions()[&name].name() != name {
            continue;
        }
        let over = "OVER (PARTITION BY a ORDER BY b)";
        let calls = [
            format!("{name}() {over}"),
            format!("{name}({{x}}) {over}"),
            format!("{name}({{x}}, 2) {over}"),
            format!("{name}(4) {over}"),
        ];
        let mut found = planned(&context, &calls).await;
        let same = found.iter().all(|(_, state)| *state == found[0].1);
        if same && !found.is_empty() {
            found.truncate(1);
            found[0].0 = "all";
        }
        page.push_str(&line(&name, &found));
    }
    page.push_str(
        "\n## Other names\n\nCalls that other systems have, where the session has no function of the name, and what runs for them.\n\n\
         | call | |\n|---|---|\n",
    );
    for &(name, count, text) in synonyms::all() {
        let arguments: Vec<String> = (1..=count).map(|place| format!("${place}")).collect();
        let _ = writeln!(page, "| `{name}({})` | `{text}` |", arguments.join(", "));
    }
    crate::golden::check(&Path::new("docs").join("FUNCTIONS.md"), &page);
}
