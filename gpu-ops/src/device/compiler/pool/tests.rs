//! Workers that fail in every way, behind the pipes and messages of real ones.

#![allow(clippy::unwrap_used)]

use std::io::{self, PipeReader, PipeWriter, Write, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::super::helper::{Compiler, serve};
use super::super::message::{Reply, Request, ask};
use super::*;
use crate::device::cubin_cache::{CacheKey, CubinCache};
use crate::device::nvrtc::Headers;

/// Compiles a source to itself, waits for others, or ends.
#[derive(Clone, Default)]
struct Fake {
    /// Helpers that were started, …
    started: Arc<AtomicUsize>,
    /// … that compile now, …
    busy: Arc<AtomicUsize>,
    /// … and the most at one time.
    most: Arc<AtomicUsize>,
    /// So many starts succeed.
    starts: Option<usize>,
    /// Whoever asked has ended.
    alone: bool,
}

impl Compiler for Fake {
    fn version(&self) -> (u32, u32) {
        (1, 2)
    }

    fn compile(&self, job: &Job, headers: &Headers) -> Outcome {
        assert_eq!(headers.0.len(), 1);
        let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(busy, Ordering::SeqCst);
        if job.name == "slow" {
            thread::sleep(Duration::from_millis(5));
        }
        self.busy.fetch_sub(1, Ordering::SeqCst);
        let first = self.started.load(Ordering::SeqCst) == 1;
        match job.name.as_str() {
            "dies" => panic!("the compiler has a defect"),
            "dies once" if first => panic!("the compiler has a defect"),
            "wrong" => Err("an error in line 1".into()),
            _ => Ok(job.source.clone().into_bytes()),
        }
    }

    fn is_alone(&self) -> bool {
        self.alone
    }
}

struct FakeWorker {
    input: PipeWriter,
    output: PipeReader,
    crashes: bool,
}

impl Worker for FakeWorker {
    fn compile(&mut self, job: &Job) -> Result<Outcome, Death> {
        ask(job, &mut self.input, &mut self.output).map_err(|error| Death {
            cause: error.to_string(),
            crashed: self.crashes,
        })
    }
}

struct Fakes {
    fake: Fake,
    crash: bool,
}

impl Start for Fakes {
    fn start(&self) -> Result<Box<dyn Worker>, String> {
        let number = self.fake.started.fetch_add(1, Ordering::SeqCst);
        if self.fake.starts.is_some_and(|starts| number >= starts) {
            return Err("no more of them".into());
        }
        let (request, mut input) = pipe().unwrap();
        let (mut output, reply) = pipe().unwrap();
        let fake = self.fake.clone();
        thread::spawn(move || serve(request, reply, |_| Ok(fake.clone())));
        let headers = Headers(vec![("a.cuh".into(), String::new())]);
        let library = String::new();
        Request::Setup { library, headers }
            .write(&mut input)
            .unwrap();
        assert_eq!(Reply::read(&mut output).unwrap(), Reply::Ready(1, 2));
        Ok(Box::new(FakeWorker {
            input,
            output,
            crashes: self.crash,
        }))
    }
}

fn pool(fake: &Fake, most: usize) -> Pool {
    let start = Fakes {
        fake: fake.clone(),
        crash: false,
    };
    Pool::new(Box::new(start), most)
}

fn job(name: &str, source: &str) -> Job {
    Job {
        name: name.into(),
        source: source.into(),
        options: vec![],
        kept: None,
    }
}

/// Takes one answer, and no more where the pipe breaks.
struct Answers {
    breaks: bool,
    taken: usize,
}

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.breaks && self.taken > 0 {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.taken += 1;
        Ok(())
    }
}

/// Whether the end of who asked shows by the pipe, or others hold that open.
#[test]
fn what_nobody_waits_for_any_more_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CubinCache::new(Some(folder.path().join("kernels")));
    for (breaks, alone) in [(true, false), (false, true), (false, false)] {
        let key = CacheKey::new(["k"]);
        let setup = Request::Setup {
            library: String::new(),
            headers: Headers(vec![("a.cuh".into(), String::new())]),
        };
        let compile = Request::Compile(Job {
            kept: cache.path(&key),
            ..job("k", "source")
        });
        let mut requests = Vec::new();
        setup.write(&mut requests).unwrap();
        compile.write(&mut requests).unwrap();
        let fake = Fake {
            alone,
            ..Fake::default()
        };
        let answers = Answers { breaks, taken: 0 };
        let served = serve(requests.as_slice(), answers, |_| Ok(fake.clone()));
        // Who is there keeps it.
        let left = breaks || alone;
        assert_eq!(served.is_err(), left);
        let kept = cache.get(&key);
        assert_eq!(kept.as_deref(), left.then_some(&b"source"[..]));
        cache.remove(&key);
    }
}

fn works(pool: &Pool) {
    assert_eq!(pool.compile(&job("k", "text")), Ok(Ok(b"text".to_vec())));
}

#[test]
fn callers_share_no_more_workers_than_allowed() {
    let fake = Fake::default();
    let pool = pool(&fake, 3);
    thread::scope(|scope| {
        for caller in 0..8 {
            let pool = &pool;
            scope.spawn(move || {
                for number in 0..20 {
                    // More than a pipe holds.
                    let text = format!("{caller}.{number} ").repeat(20_000);
                    let outcome = pool.compile(&job("slow", &text));
                    assert_eq!(outcome, Ok(Ok(text.into_bytes())));
                }
            });
        }
    });
    assert_eq!(fake.started.load(Ordering::SeqCst), 3);
    assert!(fake.most.load(Ordering::SeqCst) <= 3);
    assert_eq!(pool.workers(), 3);
    pool.set_most(1);
    assert_eq!(pool.workers(), 1);
    works(&pool);
    pool.retire(Duration::ZERO);
    assert_eq!(pool.workers(), 0);
    works(&pool);
    pool.retire(Duration::from_secs(3600));
    assert_eq!(pool.workers(), 1);
}

#[test]
fn messages_of_the_compiler_are_no_reason_for_another_worker() {
    let fake = Fake::default();
    let pool = pool(&fake, 2);
    for _ in 0..3 {
        let outcome = pool.compile(&job("wrong", ""));
        assert_eq!(outcome, Ok(Err("an error in line 1".into())));
    }
    assert_eq!(fake.started.load(Ordering::SeqCst), 1);
}

#[test]
fn a_worker_that_ends_is_replaced_and_its_source_tried_once_more() {
    let fake = Fake::default();
    let pool = pool(&fake, 2);
    let outcome = pool.compile(&job("dies once", "text"));
    assert_eq!(outcome, Ok(Ok(b"text".to_vec())));
    assert_eq!(fake.started.load(Ordering::SeqCst), 2);
    assert_eq!(pool.workers(), 1);
    for (number, crash) in [(1, false), (2, true)] {
        let start = Fakes {
            fake: fake.clone(),
            crash,
        };
        let pool = Pool::new(Box::new(start), 1);
        let Err(Failure::Lost(death)) = pool.compile(&job("dies", "")) else {
            panic!("{number}: it is not tried for ever");
        };
        assert_eq!(death.crashed, crash);
        assert_eq!(pool.workers(), 0);
        works(&pool);
    }
}

#[test]
fn where_no_more_start_the_others_do_the_work() {
    let fake = Fake {
        starts: Some(1),
        ..Fake::default()
    };
    let shared = pool(&fake, 4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| works(&shared)));
        }
    });
    assert_eq!(shared.workers(), 1);
    let none = Fake {
        starts: Some(0),
        ..Fake::default()
    };
    let pool = pool(&none, 4);
    for _ in 0..2 {
        let failed = pool.compile(&job("k", ""));
        assert_eq!(failed, Err(Failure::NoWorker("no more of them".into())));
        assert!(pool.try_start().is_err());
    }
    assert_eq!(none.started.load(Ordering::SeqCst), 1, "it is asked once");
}
