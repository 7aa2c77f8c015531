//! All kernels that a program launches, compiled at once on as many threads as there are cores.
//!
//! Generated kernels are waited for. Hand-written ones are needed later, if at all: on a GPU they are compiled behind the generated
//! ones, but for those that take longest, and who launches one that is not ready waits for it then.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::codegen::KernelProgram;
use crate::device::Kernel;
use crate::error::{GpuError, Result};
use crate::exec::prepare::builtins::{Builtin, Builtins};
use crate::query::Query;
use crate::runtime::Runtime;

/// Compile the hand-written kernels that most queries need on the runtime's first use: while the first tables
/// load, so that no query waits for them. Failures show up where a kernel is used.
pub(in crate::exec) fn warm_up(runtime: &Arc<Runtime>) {
    if runtime.first_use() {
        ahead(runtime, Builtins::common());
    }
}

/// The generated kernels, in order.
///
/// # Errors
/// [`GpuError::Compile`], [`GpuError::Device`].
pub(in crate::exec) fn compile(
    runtime: &Arc<Runtime>,
    kernels: &[&KernelProgram],
    builtins: Builtins,
) -> Result<Vec<Kernel>> {
    let batch = Batch::new(runtime, kernels.to_vec(), builtins.into_wanted());
    match background(runtime) {
        Some(handle) => {
            batch.begin(&handle);
            // Also where the end of tokio's runtime keeps others from beginning.
            batch.work(true);
        }
        None => std::thread::scope(|scope| {
            for _ in 1..batch.workers() {
                scope.spawn(|| batch.work(false));
            }
            batch.work(false);
        }),
    }
    batch.wait()
}

/// Compile hand-written kernels that are about to be launched one after the other, all at once; nothing is waited for.
pub(in crate::exec) fn ahead(runtime: &Arc<Runtime>, builtins: Builtins) {
    if let Some(handle) = background(runtime) {
        Batch::new(runtime, vec![], builtins.into_wanted()).begin(&handle);
    }
}

/// Does [`ahead`] compile anything?
pub(in crate::exec) fn compiles_ahead(runtime: &Runtime) -> bool {
    background(runtime).is_some()
}

/// What runs in the background, if anything may: the emulator's compiler takes the cores that its kernels run on.
fn background(runtime: &Runtime) -> Option<Handle> {
    let emulated = runtime.device().info().emulated;
    Handle::try_current().ok().filter(|_| !emulated)
}

/// One kernel, or one hand-written module.
enum Task {
    Generated {
        number: usize,
        entry: &'static str,
        source: String,
    },
    Builtin(Builtin),
}

/// Kernels that are compiled together.
struct Batch {
    runtime: Arc<Runtime>,
    /// Who asks: a stopped query begins no more of them.
    query: Option<Arc<Query>>,
    tasks: Mutex<VecDeque<Task>>,
    /// How many are generated.
    generated: usize,
    /// What became of these.
    done: Mutex<Vec<(usize, Result<Kernel>)>>,
    changed: Condvar,
}

impl Batch {
    /// The longest before others, so that none is begun when all others have ended: hand-written ones that take longest, generated
    /// ones by their length, and the other hand-written ones, which may be needed later.
    fn new(
        runtime: &Arc<Runtime>,
        kernels: Vec<&KernelProgram>,
        builtins: Vec<Builtin>,
    ) -> Arc<Self> {
        let count = kernels.len();
        let mut order: Vec<_> = kernels.into_iter().enumerate().collect();
        order.sort_by_key(|(_, kernel)| Reverse(kernel.source.len()));
        let generated = order.into_iter().map(|(number, kernel)| Task::Generated {
            number,
            entry: kernel.entry,
            source: kernel.source.clone(),
        });
        let (long, short): (Vec<_>, Vec<_>) = builtins.into_iter().partition(Builtin::is_long);
        let [long, short] = [long, short].map(|of| of.into_iter().map(Task::Builtin));
        Arc::new(Self {
            runtime: Arc::clone(runtime),
            query: Query::current(),
            tasks: Mutex::new(long.chain(generated).chain(short).collect()),
            generated: count,
            done: Mutex::new(Vec::with_capacity(count)),
            changed: Condvar::new(),
        })
    }

    /// Threads that have something to do.
    fn workers(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.min(self.tasks.lock().len()).max(1)
    }

    /// Compile on threads that go on when the generated kernels are there. The end of tokio's runtime waits for them.
    fn begin(self: &Arc<Self>, handle: &Handle) {
        for _ in 0..self.workers() {
            let batch = Arc::clone(self);
            drop(handle.spawn_blocking(move || batch.work(false)));
        }
    }

    /// Compile until nothing is left, or none of the `generated` ones.
    fn work(&self, generated: bool) {
        let next = || {
            let mut tasks = self.tasks.lock();
            let suits = |task: &Task| !generated || matches!(task, Task::Generated { .. });
            let at = tasks.iter().position(suits)?;
            tasks.remove(at)
        };
        while let Some(task) = next() {
            let stopped = self.query.as_ref().map_or(Ok(()), |query| query.check());
            match task {
                Task::Generated {
                    number,
                    entry,
                    source,
                } => {
                    let compile = || stopped.and_then(|()| self.runtime.kernel(entry, &source));
                    // Somebody waits for each of them.
                    let kernel = catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|_| {
                        Err(GpuError::Internal(format!("compiling '{entry}' panicked")))
                    });
                    let kernel = kernel.map(|(kernel, _)| kernel);
                    self.done.lock().push((number, kernel));
                    self.changed.notify_all();
                }
                Task::Builtin(builtin) => {
                    if let Err(error) = stopped.and_then(|()| builtin.compile(&self.runtime)) {
                        log::debug!("a kernel was not compiled ahead of its use: {error}");
                    }
                }
            }
        }
    }

    /// The generated kernels.
    fn wait(&self) -> Result<Vec<Kernel>> {
        let mut done = self.done.lock();
        while done.len() < self.generated {
            self.changed.wait(&mut done);
        }
        let mut done = std::mem::take(&mut *done);
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, kernel)| kernel).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codegen::{Slot, SourceRows};
    use crate::device::faulty::Operation;
    use crate::exec::tests::{kernel, runtime};

    /// A kernel that no other test compiles.
    fn numbered(number: usize) -> KernelProgram {
        let body = format!("const u64 number = {number}; (void)(number + first + stride);");
        kernel(SourceRows::One, None, &[Slot::SourceRows], &[], &body)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kernels_come_in_order_and_hand_written_ones_behind_them() {
        let (runtime, _) = runtime(1 << 20);
        let programs: Vec<_> = (0..5).map(|number| numbered(9_000 + number)).collect();
        let batch = Batch::new(
            &runtime,
            programs.iter().collect(),
            Builtins::common().into_wanted(),
        );
        batch.begin(&Handle::current());
        let other = Arc::clone(&batch);
        let kernels = tokio::task::spawn_blocking(move || {
            other.work(true);
            other.wait()
        });
        let kernels = kernels.await.unwrap().unwrap();
        assert_eq!(kernels.len(), programs.len());
        for (kernel, program) in kernels.iter().zip(&programs) {
            let (same, _) = runtime.kernel(program.entry, &program.source).unwrap();
            assert!(Arc::ptr_eq(&kernel.handle, &same.handle));
        }
        // Nobody waits for them, but all of them are begun.
        while !batch.tasks.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn what_does_not_compile_is_told_and_a_hand_written_kernel_is_not_asked_for() {
        let (runtime, device) = runtime(1 << 20);
        let mut broken = numbered(9_100);
        broken.source.push_str("no C++");
        let good = numbered(9_101);
        let error = compile(&runtime, &[&good, &broken], Builtins::default()).unwrap_err();
        assert!(matches!(error, GpuError::Compile { .. }), "{error}");
        // What fails ahead of its use is asked for again where it is used.
        device.fail(Operation::Compile, 1);
        let mut builtins = Builtins::default();
        builtins.of_strings();
        let kernels = compile(&runtime, &[&good], builtins).unwrap();
        assert_eq!(kernels.len(), 1);
        assert!(!device.clear(Operation::Compile), "nothing failed");
    }

    #[test]
    fn without_others_all_is_compiled_by_who_asks() {
        let (runtime, _) = runtime(1 << 20);
        let program = numbered(9_200);
        let batch = Batch::new(&runtime, vec![&program], Builtins::common().into_wanted());
        batch.work(true);
        assert_eq!(batch.wait().unwrap().len(), 1);
        assert_eq!(
            batch.tasks.lock().len(),
            Builtins::common().into_wanted().len()
        );
    }

    #[test]
    fn what_takes_longest_is_begun_first() {
        let (runtime, _) = runtime(1 << 20);
        let programs = [numbered(9_300), numbered(9_301)];
        let long = Builtin::MergeJoin {
            width: 8,
            unique: false,
        };
        let batch = Batch::new(
            &runtime,
            programs.iter().collect(),
            vec![Builtin::Sums, long],
        );
        let order = |batch: &Batch| -> Vec<_> {
            let kind = |task: &Task| match task {
                Task::Generated { .. } => "generated",
                Task::Builtin(builtin) if builtin.is_long() => "long",
                Task::Builtin(_) => "short",
            };
            batch.tasks.lock().iter().map(kind).collect()
        };
        assert_eq!(order(&batch), ["long", "generated", "generated", "short"]);
        // Who waits for generated kernels begins no others.
        batch.work(true);
        assert_eq!(batch.wait().unwrap().len(), 2);
        assert_eq!(order(&batch), ["long", "short"]);
    }
}
