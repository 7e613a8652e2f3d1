//! The work of clients, several at a time.
//!
//! Threads live for one operation: they are started when there is work that is worth them, which
//! is a compiled computation for more than one client, and are gone when it is done. A pool would
//! save some 30 µs a thread beside work of milliseconds, and would have to survive forks and the
//! end of the interpreter. Each takes the next client when it is free.
//!
//! When the call is given up, threads are asked to end. One that doesn't, because it is inside of
//! something that can't be ended, is left behind: it owns all that it works on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::machine::{Calls, Flow, Frame};
use super::perform::Then;
use super::{Function, Interpreter, Kernels, Value};

/// How often the waiting thread asks whether to give up.
const ASK: Duration = Duration::from_millis(20);

/// How long threads have to end when the call is given up.
const GRACE: Duration = Duration::from_millis(60);

/// What the threads share.
struct Work<K: Kernels> {
    interpreter: Interpreter<K>,
    function: Function<K::Leaf>,
    calls: Calls<K::Leaf>,
    /// The next client that nobody has taken.
    next: AtomicUsize,
    /// No client from this one on is begun: one before it failed.
    end: AtomicUsize,
    results: Vec<OnceLock<Outcome<K>>>,
}

type Outcome<K> = Result<Value<<K as Kernels>::Leaf>, <K as Kernels>::Error>;

impl<K: Kernels> Interpreter<K> {
    /// Calls the function once for each client.
    pub(super) fn at_clients(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        let threads = self.threads.min(calls.len());
        if threads > 1 && !self.at_client && function.is_heavy() {
            return Ok(Flow::Return(self.in_threads(threads, function, calls)?));
        }
        self.each(frames, function, calls, Vec::new(), Then::Clients)
    }

    fn in_threads(
        &self,
        threads: usize,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
    ) -> Outcome<K> {
        let clients = calls.len();
        let work = Arc::new(Work {
            interpreter: self.of_client(),
            function,
            calls,
            next: AtomicUsize::new(0),
            end: AtomicUsize::new(clients),
            results: std::iter::repeat_with(OnceLock::new).take(clients).collect(),
        });
        self.kernels.waiting(|| {
            let (alive, ended) = mpsc::channel();
            let start = |_| work.start(alive.clone());
            let started: Vec<_> = (0..threads).filter_map(start).collect();
            drop(alive);
            if started.is_empty() {
                self.kernels.working(&mut || work.run());
            }
            work.wait(started, &ended)
        })?;
        let mut members = Vec::with_capacity(clients);
        for client in 0..clients {
            let result = work.results[client].get();
            match result.expect("every client up to the first failure was run") {
                Ok(member) => members.push(member.clone()),
                Err(_) => return Err(self.failure(work, client)),
            }
        }
        Ok(Value::each(members))
    }

    /// How the work of a client failed.
    fn failure(&self, work: Arc<Work<K>>, client: usize) -> K::Error {
        // The threads have let go of it: they said that they ended after that.
        let work = Arc::into_inner(work).expect("all threads have ended");
        let failed = work.results.into_iter().nth(client).and_then(OnceLock::into_inner);
        let error = failed.and_then(Result::err).expect("it failed");
        self.kernels.at_client(error, client)
    }
}

impl<K: Kernels> Work<K> {
    /// Starts a thread, which holds `alive` as long as it works. None, if there was none to be had.
    fn start(self: &Arc<Self>, alive: mpsc::Sender<()>) -> Option<JoinHandle<()>> {
        let mut work = Some(Arc::clone(self));
        let kernels = Arc::clone(&self.interpreter.kernels);
        let run = move || {
            kernels.working(&mut || {
                if let Some(work) = work.take() {
                    work.run();
                }
            });
            drop(alive);
        };
        Builder::new().name("stator-client".to_owned()).spawn(run).ok()
    }

    /// Waits until all threads have ended, asking now and then whether to give up.
    fn wait(
        &self,
        threads: Vec<JoinHandle<()>>,
        ended: &mpsc::Receiver<()>,
    ) -> Result<(), K::Error> {
        let kernels = &self.interpreter.kernels;
        let mut given_up: Option<(Instant, K::Error)> = None;
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(ASK) {
            match &given_up {
                None => {
                    if let Err(error) = kernels.interrupted() {
                        self.end.store(0, Ordering::Relaxed);
                        self.interpreter.given_up.store(true, Ordering::Relaxed);
                        kernels.give_up();
                        given_up = Some((Instant::now(), error));
                    }
                }
                Some((since, _)) if since.elapsed() < GRACE => {}
                Some(_) => {
                    threads
                        .into_iter()
                        .filter(|thread| !thread.is_finished())
                        .for_each(|thread| kernels.leave(thread));
                    break;
                }
            }
        }
        match given_up {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
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
