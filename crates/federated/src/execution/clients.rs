//! The work of clients, several at a time.
//!
//! Threads live for one operation: they are started when there is work that is worth them, which
//! is a compiled computation for more than one client, and are gone when it is done. A pool would
//! save some 30 µs a thread beside work of milliseconds, and would have to survive forks and the
//! end of the interpreter. Each takes the next client when it is free.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use super::machine::{Calls, Flow, Frame};
use super::perform::Then;
use super::{Function, Interpreter, Kernels, Value};

/// How often the waiting thread asks whether to give up.
const ASK: Duration = Duration::from_millis(50);

/// What the threads share.
struct Work<'a, K: Kernels> {
    interpreter: Interpreter<'a, K>,
    function: &'a Function<K::Leaf>,
    calls: &'a Calls<K::Leaf>,
    /// The next client that nobody has taken.
    next: AtomicUsize,
    /// No client from this one on is begun: one before it failed.
    end: AtomicUsize,
    results: Vec<OnceLock<Outcome<K>>>,
}

type Outcome<K> = Result<Value<<K as Kernels>::Leaf>, <K as Kernels>::Error>;

impl<K: Kernels> Interpreter<'_, K> {
    /// Calls the function once for each client.
    pub(super) fn at_clients(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let threads = self.threads.min(calls.len());
        if threads > 1 && !self.at_client && function.is_heavy() {
            return Ok(Flow::Return(self.in_threads(threads, &function, &calls)?));
        }
        self.each(frames, function, calls, Vec::new(), Then::Clients)
    }

    fn in_threads(
        &self,
        threads: usize,
        function: &Function<K::Leaf>,
        calls: &Calls<K::Leaf>,
    ) -> Outcome<K> {
        let interpreter = Interpreter { at_client: true, ..*self };
        let work = Work {
            interpreter,
            function,
            calls,
            next: AtomicUsize::new(0),
            end: AtomicUsize::new(calls.len()),
            results: std::iter::repeat_with(OnceLock::new).take(calls.len()).collect(),
        };
        let interrupted = self.kernels.waiting(|| {
            std::thread::scope(|scope| {
                let (alive, ended) = mpsc::channel();
                let started = (0..threads).filter(|_| work.start(scope, alive.clone())).count();
                drop(alive);
                if started == 0 {
                    self.kernels.working(&mut || work.run());
                }
                wait(&work, &ended)
            })
        });
        interrupted?;
        let mut members = Vec::with_capacity(calls.len());
        for (client, result) in work.results.into_iter().enumerate() {
            match result.into_inner().expect("every client up to the first failure was run") {
                Ok(member) => members.push(member),
                Err(error) => return Err(self.kernels.at_client(error, client)),
            }
        }
        Ok(Value::each(members))
    }
}

/// Waits until all threads have ended, asking now and then whether to give up.
fn wait<K: Kernels>(work: &Work<'_, K>, ended: &mpsc::Receiver<()>) -> Result<(), K::Error> {
    let mut outcome = Ok(());
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(ASK) {
        if outcome.is_ok() {
            outcome = work.interpreter.kernels.interrupted();
            if outcome.is_err() {
                work.end.store(0, Ordering::Relaxed);
            }
        }
    }
    outcome
}

impl<K: Kernels> Work<'_, K> {
    /// Starts a thread, which holds `alive` as long as it works. Whether there was one to be had.
    fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        alive: mpsc::Sender<()>,
    ) -> bool {
        let work = move || {
            self.interpreter.kernels.working(&mut || self.run());
            drop(alive);
        };
        Builder::new().name("stator-client".to_owned()).spawn_scoped(scope, work).is_ok()
    }

    /// Does the work of one client after the other.
    fn run(&self) {
        loop {
            let client = self.next.fetch_add(1, Ordering::Relaxed);
            // Clients are taken in order: those before one that failed have all been taken, so the
            // first failure is the same however many threads there are.
            if client >= self.end.load(Ordering::Relaxed) {
                return;
            }
            let argument = self.calls.get(client).expect("the end is at most their number");
            let result = self.interpreter.run(self.function.clone(), argument);
            if result.is_err() {
                self.end.fetch_min(client, Ordering::Relaxed);
            }
            let _ = self.results[client].set(result);
        }
    }
}
