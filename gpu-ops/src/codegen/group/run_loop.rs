//! Rows that follow each other in one group are added up before the group's state is touched.
//!
//! A thread adds up its rows as long as their run stays the same, and a warp whose rows are all of one run adds to the state once.
//! Such a warp keeps what it has for the next tile: a group of millions of rows is added to once a warp, not once a warp and
//! tile, where all of them would queue at one state (JCC-H Q18 at scale 30 on an H100: the rows of 5 groups took 6.2 ms, and take 0.9).

use std::fmt::Write as _;

use super::states::{Groups, warp_total};
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::codegen::key::codes;

/// What tells the run of a row, in C++.
pub(super) struct RunOfRow {
    /// The type of `run`.
    pub(super) data_type: String,
    /// The run of row `k`, if that is alive.
    pub(super) number: String,
    /// What goes with a run beside its number: type, name and value for row `k`.
    pub(super) beside: Option<(String, &'static str, String)>,
}

/// Writes the lambda of a name that adds `{partial}0`, `{partial}1` … to the group of `run`.
pub(super) type Closing<'a> = &'a dyn Fn(&mut KernelWriter<'_>, &str, &str);

impl KernelWriter<'_> {
    /// Add up the runs of a tile, which end with it.
    pub(super) fn add_up_runs(
        &mut self,
        groups: &Groups,
        lines: &[String],
        of: &RunOfRow,
        closing: Closing<'_>,
    ) {
        line!(self, "    {{");
        self.open_runs(groups, of);
        closing(self, "close_run", "q");
        self.rows_of_runs(groups, lines, of);
        line!(
            self,
            "      u32 leader;\n      if (warp_is_one_run(open, run, leader)) {{"
        );
        self.warp_totals(groups);
        closing(self, "close_warp", "t");
        line!(self, "        if (lane_id() == leader) close_warp();");
        line!(self, "      }} else if (open) close_run();");
        line!(self, "    }}");
    }

    /// What threads have of the run at hand, from before the first tile to behind the last.
    pub(super) fn begin_carried_runs(&mut self, groups: &Groups) {
        let of = run_of_row(groups);
        self.open_runs(groups, &of);
        self.closing(groups, "close_run", "q");
        // All lanes of the warp have rows of `run`, or none.
        line!(self, "  bool carried = false;");
        line!(self, "  const auto close_carried = [&]() {{");
        self.warp_totals(groups);
        self.closing(groups, "add", "t");
        line!(self, "    if (lane_id() == 0) add();");
        self.clear_run(groups);
        line!(self, "    open = false; carried = false;\n  }};");
    }

    /// Add up the rows of a tile to the run at hand and to those that follow.
    pub(super) fn carry_runs(&mut self, groups: &Groups, lines: &[String]) {
        let of = run_of_row(groups);
        let key_lines = match &self.pipeline.sink {
            EmittedSink::Aggregate { key_lines, .. } => (*key_lines).min(lines.len()),
            _ => lines.len(),
        };
        line!(self, "    if (carried) {{");
        line!(self, "      bool same = true;");
        line!(self, "      if (live != 0) {{");
        self.row_loop(&lines[..key_lines], "live");
        line!(
            self,
            "        if (alive) same = same && ({}) == run;",
            of.number
        );
        line!(self, "      }}\n      }}");
        line!(
            self,
            "      if (!__all_sync(WL_FULL_MASK, same)) close_carried();\n    }}"
        );
        self.rows_of_runs(groups, lines, &of);
        line!(self, "    u32 leader;");
        line!(self, "    if (warp_is_one_run(open, run, leader)) {{");
        line!(
            self,
            "      run = __shfl_sync(WL_FULL_MASK, run, (int)leader); open = true; carried = true;"
        );
        line!(self, "    }} else if (open) {{\n      close_run();");
        self.clear_run(groups);
        line!(self, "      open = false;\n    }}");
    }

    /// Add what warps have carried to the end.
    pub(super) fn end_carried_runs(&mut self) {
        line!(self, "  if (carried) close_carried();");
    }

    fn open_runs(&mut self, groups: &Groups, of: &RunOfRow) {
        line!(self, "      bool open = false; {} run = 0;", of.data_type);
        if let Some((data_type, name, _)) = &of.beside {
            line!(self, "      {data_type} {name} = 0;");
        }
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            line!(self, "      {} q{i} = 0;", a.partial_type());
        }
    }

    fn clear_run(&mut self, groups: &Groups) {
        for i in 0..groups.plan().accumulators.len() {
            line!(self, "          q{i} = 0;");
        }
    }

    fn warp_totals(&mut self, groups: &Groups) {
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            let total = warp_total(a, &format!("q{i}"));
            line!(self, "        const auto t{i} = {total};");
        }
    }

    /// Add a thread's live rows to its run; where another begins, it is closed.
    fn rows_of_runs(&mut self, groups: &Groups, lines: &[String], of: &RunOfRow) {
        line!(self, "      if (live != 0) {{");
        self.row_loop(lines, "live");
        line!(
            self,
            "        const {} run_of_k = alive ? {} : run;",
            of.data_type,
            of.number
        );
        line!(
            self,
            "        if (alive && open && run_of_k != run) {{\n          close_run();"
        );
        self.clear_run(groups);
        line!(self, "        }}");
        line!(self, "        run = run_of_k; open = open || alive;");
        if let Some((_, name, value)) = &of.beside {
            line!(self, "        if (alive) {name} = {value};");
        }
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            let text = a.add_to_partial(&format!("q{i}"), &a.condition);
            line!(self, "        {text}");
        }
        line!(self, "      }}\n      }}");
    }
}

/// The group of a row as its run: a number, or the packed key.
pub(super) fn run_of_row(groups: &Groups) -> RunOfRow {
    let layout = &groups.layout;
    let codes: Vec<String> = layout.keys.iter().map(codes::code).collect();
    let number = if layout.regrouped.is_some() {
        "group_of[k]".to_string()
    } else if groups.hashed() {
        codes::packed_words(&layout.keys, &codes, 1).remove(0)
    } else {
        codes::dense_code(&layout.keys, &codes)
    };
    RunOfRow {
        data_type: "u64".to_string(),
        number,
        beside: None,
    }
}
