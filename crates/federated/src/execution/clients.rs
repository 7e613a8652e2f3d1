//! The work of clients, several at a time.
//!
//! Threads live for one operation: they are started when there is work that is worth them, which
//! is a compiled computation for more than one client, and are gone when it is done. A pool would
//! save some 30 µs a thread beside work of milliseconds, and would have to survive forks and the
//! end of the interpreter. Each takes the next clients when it is free: one, or as many as the computation runs for at
//! once.
//!
//! When the call is given up, threads are asked to end. One that doesn't, because it is inside of
//! something that can't be ended, is left behind: it owns all that it works on.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::machine::{Calls, Flow, Frame, rearranged};
use super::perform::Then;
use super::{Draw, Function, Interpreter, Kernels, Members, Value};
use crate::types::Type;

/// How often the waiting thread asks whether to give up.
const ASK: Duration = Duration::from_millis(20);

/// How long threads have to end when the call is given up.
const GRACE: Duration = Duration::from_millis(60);

/// What the threads share.
struct Work<K: Kernels> {
    interpreter: Interpreter<K>,
    function: Function<K::Leaf>,
    calls: Calls<K::Leaf>,
    /// How many clients a thread takes at a time.
    at_once: usize,
    /// The next client that nobody has taken.
    next: AtomicUsize,
    /// No client from this one on is begun: one before it failed.
    end: AtomicUsize,
    results: Vec<OnceLock<Outcome<K>>>,
}

type Outcome<K> = Result<Value<<K as Kernels>::Leaf>, <K as Kernels>::Error>;

impl<K: Kernels> Interpreter<K> {
    /// Calls the function once for each client: now, or later where that is work. `ty` is the type of what all hold then.
    pub(super) fn at_clients(
        &self,
        frames: &mut Vec<Frame<K::Leaf>>,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
        ty: &Type,
        map: usize,
    ) -> Result<Flow<K::Leaf>, K::Error> {
        if self.at_client || !function.is_heavy() {
            return self.each(frames, function, calls, Vec::new(), Then::Clients);
        }
        Ok(Flow::Return(self.later(function, calls, ty, map)?))
    }

    /// What the function gives for some of the calls, in their order. Call 0 is that of client `first`, in the map
    /// of this number.
    pub(super) fn work(
        &self,
        function: &Function<K::Leaf>,
        calls: &Calls<K::Leaf>,
        range: Range<usize>,
        first: usize,
        map: usize,
    ) -> Result<Members<K::Leaf>, K::Error> {
        let first = first + range.start;
        if let (Some(code), Calls::With(arguments)) = (function.rearranges(), calls) {
            self.go_on_or_err()?;
            return Ok(rearranged(code, &arguments[range])?);
        }
        let calls = calls.part(range);
        if !function.draws(&*self.kernels) {
            return self.work_on(function, calls, first, None);
        }
        let draw = Draw { map, client: self.first + first };
        self.kernels.drawing(|| self.work_on(function, calls, first, Some(draw)))
    }

    /// What the function gives for the calls. `draw`: whose numbers the first one draws, where it may draw some.
    fn work_on(
        &self,
        function: &Function<K::Leaf>,
        calls: Calls<K::Leaf>,
        first: usize,
        draw: Option<Draw>,
    ) -> Result<Members<K::Leaf>, K::Error> {
        let mut done = Vec::with_capacity(calls.len());
        if function.is_heavy() && calls.len() > 1 {
            let at_once = match calls {
                Calls::With(_) => self.window(function),
                Calls::Without(_) => 1,
            };
            let most = if draw.is_some() { 1 } else { self.threads };
            let threads = most.min(calls.len().div_ceil(at_once));
            if threads > 1 {
                return self.in_threads(threads, at_once, function.clone(), calls, first);
            }
            while at_once > 1 && done.len() < calls.len() {
                self.go_on_or_err()?;
                let clients = done.len()..calls.len().min(done.len() + at_once);
                let draw = draw.map(|draw| draw.after(done.len()));
                let members = self.together(function, &calls, clients, draw)?;
                let Some(members) = members else { break };
                done.extend(members);
            }
            let threads = most.min(calls.len());
            if done.is_empty() && threads > 1 {
                return self.in_threads(threads, 1, function.clone(), calls, first);
            }
        }
        let of_client = self.of_client();
        while let Some(argument) = calls.get(done.len()) {
            self.go_on_or_err()?;
            if let Some(draw) = draw {
                self.kernels.draw_for(draw.after(done.len()))?;
            }
            let made = of_client.run(function.clone(), argument);
            done.push(
                made.map_err(|error| {
                    self.kernels.at_client(error, self.first + first + done.len())
                })?,
            );
        }
        Ok(done)
    }

    /// What the function gives for these clients, if it can run for all at once.
    fn together(
        &self,
        function: &Function<K::Leaf>,
        calls: &Calls<K::Leaf>,
        clients: Range<usize>,
        draw: Option<Draw>,
    ) -> Result<Option<Members<K::Leaf>>, K::Error> {
        let (Function::Compiled(compiled, ty), Calls::With(arguments)) = (function, calls) else {
            return Ok(None);
        };
        self.kernels.together(compiled, ty, &arguments[clients], draw)
    }

    fn in_threads(
        &self,
        threads: usize,
        at_once: usize,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
        first: usize,
    ) -> Result<Members<K::Leaf>, K::Error> {
        let clients = calls.len();
        let work = Arc::new(Work {
            interpreter: self.of_client(),
            function,
            calls,
            at_once,
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
                Err(_) => return Err(self.failure(work, client, first)),
            }
        }
        Ok(members)
    }

    /// How the work of a client failed.
    fn failure(&self, work: Arc<Work<K>>, client: usize, first: usize) -> K::Error {
        // The threads have let go of it: they said that they ended after that.
        let work = Arc::into_inner(work).expect("all threads have ended");
        let first = work.interpreter.first + first;
        let failed = work.results.into_iter().nth(client).and_then(OnceLock::into_inner);
        let error = failed.and_then(Result::err).expect("it failed");
        self.kernels.at_client(error, first + client)
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

    /// Does the work of some clients after that of others.
    fn run(&self) {
        loop {
            let first = self.next.fetch_add(self.at_once, Ordering::Relaxed);
            // Clients are taken in order: those before one that failed have all been taken, so the
            // first failure is the same however many threads there are.
            if first >= self.end.load(Ordering::Relaxed) {
                return;
            }
            self.work(first..self.calls.len().min(first + self.at_once));
        }
    }

    fn work(&self, clients: Range<usize>) {
        if clients.len() > 1
            && let Ok(Some(members)) =
                self.interpreter.together(&self.function, &self.calls, clients.clone(), None)
        {
            for (client, member) in clients.zip(members) {
                let _ = self.results[client].set(Ok(member));
            }
            return;
        }
        for client in clients {
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
