//! Rows that follow each other in one group are added up before the group's state is touched.

use std::fmt::Write as _;

use super::states::{Groups, warp_total};
use crate::codegen::kernel::writer::{KernelWriter, line};

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
    /// Each thread adds up its live rows as long as their run stays the same, a warp with rows of a single run all of them.
    pub(super) fn add_up_runs(
        &mut self,
        groups: &Groups,
        lines: &[String],
        of: &RunOfRow,
        closing: Closing<'_>,
    ) {
        let accumulators = &groups.plan().accumulators;
        line!(self, "    {{");
        line!(self, "      bool open = false; {} run = 0;", of.data_type);
        if let Some((data_type, name, _)) = &of.beside {
            line!(self, "      {data_type} {name} = 0;");
        }
        for (i, a) in accumulators.iter().enumerate() {
            line!(self, "      {} q{i} = 0;", a.partial_type());
        }
        closing(self, "close_run", "q");
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
        for i in 0..accumulators.len() {
            line!(self, "          q{i} = 0;");
        }
        line!(self, "        }}");
        line!(self, "        run = run_of_k; open = open || alive;");
        if let Some((_, name, value)) = &of.beside {
            line!(self, "        if (alive) {name} = {value};");
        }
        for (i, a) in accumulators.iter().enumerate() {
            let text = a.add_to_partial(&format!("q{i}"), &a.condition);
            line!(self, "        {text}");
        }
        line!(self, "      }}\n      }}");
        line!(
            self,
            "      u32 leader;\n      if (warp_is_one_run(open, run, leader)) {{"
        );
        for (i, a) in accumulators.iter().enumerate() {
            let total = warp_total(a, &format!("q{i}"));
            line!(self, "        const auto t{i} = {total};");
        }
        closing(self, "close_warp", "t");
        line!(self, "        if (lane_id() == leader) close_warp();");
        line!(self, "      }} else if (open) close_run();");
        line!(self, "    }}");
    }
}
