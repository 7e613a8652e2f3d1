//! Running computations in this process.
//!
//! A tree is lowered to [`code`] first, then a machine of explicit frames runs it: neither deep
//! trees nor deep calls use Rust's stack. What is done with tensors is up to [`Kernels`]; this
//! module knows structs, sequences, functions and placements only, so it is tested without Python.
//!
//! Everything is evaluated once where it stands, in order, used or not: what a user's function
//! raises is raised. Results don't depend on the number of threads: members of federated values
//! are combined in the order of the clients.

mod clients;
mod code;
mod embedded;
mod leaves;
mod lower;
mod machine;
mod merges;
mod operation;
mod order;
mod partial;
mod perform;
mod run;
mod split;
mod streams;
mod total;
mod value;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::array::Array;
use crate::ast::{BuildingBlock, Compiled, Data};
use crate::error::{Class, Error};
use crate::types::{TensorType, Type};

pub use code::Code;
pub use embedded::{embed, embedded};
pub use leaves::of_type;
use streams::Stream;

pub use operation::{Operation, ZERO};
pub use run::{Constants, Run};
pub use split::Split;
pub use total::Total;
pub use value::{Function, Items, Value};

/// What each of several clients holds.
pub type Members<L> = Vec<Value<L>>;

/// What is done with tensors and with computations that are no trees.
///
/// Each tensor that is made has the given type; that of a value, where one is given.
pub trait Kernels: Send + Sync + 'static {
    /// What stands for one tensor.
    type Leaf: Clone + Send + Sync + 'static;
    /// Sums of which some has been added.
    type Sums: Send;
    /// What goes wrong: errors of the language among others.
    type Error: From<Error> + Send + Sync + 'static;

    /// The tensor with this content.
    fn literal(&self, array: &Array, ty: &Type) -> Result<Self::Leaf, Self::Error>;

    /// What data stands for.
    fn data(&self, data: &Data, ty: &Type) -> Result<Value<Self::Leaf>, Self::Error>;

    /// Runs a compiled computation of function type `ty`.
    fn compiled(
        &self,
        compiled: &Compiled,
        ty: &Type,
        argument: Option<Value<Self::Leaf>>,
    ) -> Result<Value<Self::Leaf>, Self::Error>;

    /// Whether running a compiled computation has no effects and depends on its argument only: then it makes no difference
    /// when it runs. The answer depends on nothing but the computation.
    fn is_pure(&self, compiled: &Compiled, ty: &Type) -> bool {
        let _ = (compiled, ty);
        false
    }

    /// Whether a compiled computation may draw random numbers from a generator that others draw from: clients then run in
    /// one thread, each with numbers of its own. The answer depends on nothing but the computation.
    fn draws(&self, compiled: &Compiled, ty: &Type) -> bool {
        let _ = (compiled, ty);
        false
    }

    /// For how many clients a compiled computation runs at once, if it can: it depends on nothing but the computation.
    fn clients_at_once(&self, compiled: &Compiled, ty: &Type) -> usize {
        let _ = (compiled, ty);
        1
    }

    /// Does work of clients that may draw random numbers. What others draw doesn't depend on it.
    fn drawing<R>(&self, work: impl FnOnce() -> Result<R, Self::Error>) -> Result<R, Self::Error> {
        work()
    }

    /// What is drawn from here on, within that work, is drawn for this client.
    fn draw_for(&self, draw: Draw) -> Result<(), Self::Error> {
        let _ = draw;
        Ok(())
    }

    /// Runs a compiled computation for several clients at once: what it gives for each. `None`: it runs for one after the
    /// other, also where it fails for one of them. `draw`: whose numbers the first one draws, where it may draw some.
    fn together(
        &self,
        compiled: &Compiled,
        ty: &Type,
        arguments: &[Value<Self::Leaf>],
        draw: Option<Draw>,
    ) -> Result<Option<Members<Self::Leaf>>, Self::Error> {
        let _ = (compiled, ty, arguments, draw);
        Ok(None)
    }

    /// The tensor of zeros.
    fn zero(&self, ty: &TensorType) -> Result<Self::Leaf, Self::Error>;

    /// The tensor of what is greater (`Bound::Most`) or less than every number of the type.
    fn bound(&self, bound: Bound, ty: &TensorType) -> Result<Self::Leaf, Self::Error>;

    /// Combines two tensors, element by element.
    fn combine(
        &self,
        how: Combine,
        left: &Self::Leaf,
        right: &Self::Leaf,
        ty: &TensorType,
    ) -> Result<Self::Leaf, Self::Error>;

    /// The sum of no tensors yet.
    fn begin_sum(&self, ty: &TensorType) -> Result<Self::Sums, Self::Error>;

    /// Adds tensors, element by element, each times its weight, if there are weights. Integers wrap, and have none. What isn't
    /// an integer is summed more precisely than its type is.
    fn add_to_sum(
        &self,
        sum: &mut Self::Sums,
        leaves: &[&Self::Leaf],
        weights: Option<&[f64]>,
        ty: &TensorType,
    ) -> Result<(), Self::Error>;

    /// The sum, divided if it isn't one of integers, by what may be zero, and rounded once; of none, zero.
    fn finish_sum(
        &self,
        sum: Self::Sums,
        divided_by: Option<f64>,
        ty: &TensorType,
    ) -> Result<Self::Leaf, Self::Error>;

    /// The sum before it is rounded: a tensor that `merge_sums` and `round` know. Of all parts of the clients
    /// together it rounds to what `finish_sum` gives.
    fn unrounded(&self, sum: Self::Sums, ty: &TensorType) -> Result<Self::Leaf, Self::Error>;

    /// Two sums that aren't rounded as one.
    fn merge_sums(
        &self,
        left: &Self::Leaf,
        right: &Self::Leaf,
        ty: &TensorType,
    ) -> Result<Self::Leaf, Self::Error>;

    /// The sum that wasn't rounded, divided, as a tensor of its type.
    fn round(
        &self,
        sum: &Self::Leaf,
        divided_by: Option<f64>,
        ty: &TensorType,
    ) -> Result<Self::Leaf, Self::Error>;

    /// A scalar as a number.
    fn number(&self, leaf: &Self::Leaf) -> Result<f64, Self::Error>;

    /// A scalar as an integer.
    fn integer(&self, leaf: &Self::Leaf) -> Result<i128, Self::Error>;

    /// The least and the greatest of integers, if there are any.
    fn range(&self, leaf: &Self::Leaf) -> Result<Option<(i128, i128)>, Self::Error>;

    /// The scalars in a tensor of one dimension.
    fn scalars(&self, leaf: &Self::Leaf) -> Result<Vec<Self::Leaf>, Self::Error>;

    /// Whether the error ends the call at once, as an interrupt does.
    fn ends_all(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// The same error, saying at which client it happened.
    fn at_client(&self, error: Self::Error, client: usize) -> Self::Error {
        let _ = client;
        error
    }

    /// Runs what waits for other threads, with everything let go that they need.
    fn waiting<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        wait()
    }

    /// Runs all the work of another thread.
    fn working(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }

    /// Asked often: whether to give up.
    fn interrupted(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The call is given up: what other threads do for it should end soon.
    fn give_up(&self) {}

    /// A thread whose work nobody waits for any more, which couldn't be ended.
    fn leave(&self, thread: JoinHandle<()>) {
        drop(thread);
    }
}

/// Whose random numbers are drawn. They depend on the call, on this, and on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Which one of the call's maps the client works in: they are counted as the computation has them.
    pub map: usize,
    /// The client, among all that there are.
    pub client: usize,
}

impl Draw {
    /// That of a client which comes so many after this one.
    #[must_use]
    pub fn after(self, clients: usize) -> Self {
        Self { map: self.map, client: self.client + clients }
    }
}

/// How two tensors are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// `a + b`
    Add,
    /// `a * b`
    Multiply,
    /// `a / b`
    Divide,
    /// The lesser of both.
    Min,
    /// The greater of both.
    Max,
}

/// The end of an element type's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The least number, or minus infinity.
    Least,
    /// The greatest number, or infinity.
    Most,
}

/// Runs computations.
pub struct Interpreter<K: Kernels> {
    kernels: Arc<K>,
    clients: Option<usize>,
    /// The number of the first of these clients, among all that there are.
    first: usize,
    threads: usize,
    /// How many maps there were.
    maps: AtomicUsize,
    /// Whether this is the work of one client, which uses one thread.
    at_client: bool,
    /// Set when nobody waits for the result any more.
    given_up: Arc<AtomicBool>,
    /// What was put off, in its order.
    streams: Mutex<Vec<Arc<Stream<K::Leaf>>>>,
}

impl<K: Kernels> std::fmt::Debug for Interpreter<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { clients, threads, at_client, .. } = self;
        let mut shown = f.debug_struct("Interpreter");
        shown.field("clients", clients).field("threads", threads);
        shown.field("at_client", at_client).finish_non_exhaustive()
    }
}

impl<K: Kernels> Interpreter<K> {
    /// An interpreter that does not know how many clients there are, and uses one thread.
    pub fn new(kernels: &Arc<K>) -> Self {
        let kernels = Arc::clone(kernels);
        Self {
            kernels,
            clients: None,
            first: 0,
            threads: 1,
            maps: AtomicUsize::new(0),
            at_client: false,
            given_up: Arc::default(),
            streams: Mutex::default(),
        }
    }

    /// The same for the work of one client.
    fn of_client(&self) -> Self {
        Self {
            kernels: Arc::clone(&self.kernels),
            clients: self.clients,
            first: self.first,
            threads: self.threads,
            maps: AtomicUsize::new(0),
            at_client: true,
            given_up: Arc::default(),
            streams: Mutex::default(),
        }
    }

    /// Fails if the call is to be given up.
    fn go_on_or_err(&self) -> Result<(), K::Error> {
        if !self.at_client {
            return self.kernels.interrupted();
        }
        match self.given_up.load(Ordering::Relaxed) {
            true => Err(Error::new(Class::Value, "nobody waits for this any more").into()),
            false => Ok(()),
        }
    }

    /// With so many clients.
    #[must_use]
    pub fn clients(mut self, clients: Option<usize>) -> Self {
        self.clients = clients;
        self
    }

    /// The clients are those from this one on.
    #[must_use]
    pub fn first(mut self, first: usize) -> Self {
        self.first = first;
        self
    }

    /// With up to so many threads for the work of clients.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The value of a block whose names are all bound in it.
    ///
    /// # Errors
    /// What the kernels say; a name that is bound nowhere; an operation that isn't known.
    pub fn evaluate(&self, block: &BuildingBlock) -> Result<Value<K::Leaf>, K::Error> {
        let code = lower::lower(block)?;
        self.call(Function::Closure { code, captured: Items::new(Vec::new()) }, None)
    }

    /// What a function gives for its argument.
    ///
    /// # Errors
    /// As for [`Self::evaluate`].
    pub fn call(
        &self,
        function: Function<K::Leaf>,
        argument: Option<Value<K::Leaf>>,
    ) -> Result<Value<K::Leaf>, K::Error> {
        let result = self.run(function, argument);
        if result.as_ref().is_err_and(|error| self.kernels.ends_all(error)) {
            return result;
        }
        // What was put off and isn't used is done too. If it fails, that came first.
        self.settle_all()?;
        self.here(result?)
    }
}
