//! Operations on tensors: nodes of the graph, and the settings they run under.
//!
//! `tensors` and `operators` execute an operation and note its node; `extremes` are `min` and `max`; `returned` says what is known of a result,
//! `numbers_given` of numbers that are given as tensors; `functional` guards what Python functions look up that replays leave out. `checks` and `custom_operators` are operators that
//! only look. `arrays` are NumPy's generators, `array_values` its arrays and scalars, `array_numbers` scalars that are taken as Python's; `plain_values` are decimals, dates and such. `switches` and `devices` are PyTorch's modes, `draws` random numbers, `seeds` where they begin, `own_generators` those of the trace's own,
//! `drawn_orders` numbers in an order that is drawn.
//! `backward` computes gradients. `enclosing` runs nodes that are code of the program's own, `given` and `given_instances` make what these are given, `early_writes` writes what they look at, `hooks` are such code.
//! `prints` is `print`, `warning_filters` says which warnings are shown. `places` guards where tensors stand that are written in place; `programs` says what an operation may write to in a tensor program.
//!
//! An operation is executed once, on the program's own tensors. What its result's shape depends on decides
//! whether it is a node at all: see `stator_operators`.

pub(super) mod array_numbers;
pub(super) mod array_values;
pub(super) mod arrays;
pub(super) mod backward;
pub(super) mod checks;
pub(super) mod custom_operators;
pub(super) mod devices;
pub(super) mod drawn_orders;
pub(super) mod draws;
mod early_writes;
pub(super) mod enclosing;
pub(super) mod extremes;
mod functional;
pub(super) mod given;
mod given_instances;
pub(super) mod hooks;
pub(super) mod numbers_given;
pub(super) mod operators;
pub(super) mod own_generators;
pub(super) mod places;
pub(super) mod plain_values;
pub(super) mod prints;
pub(super) mod programs;
pub(super) mod returned;
pub(super) mod seeds;
mod sparse_matrices;
pub(super) mod switches;
pub(super) mod tensors;
pub(super) mod warning_filters;
