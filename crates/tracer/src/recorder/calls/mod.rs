//! Calls: what the callable is, and what becomes of the call.
//!
//! `call` finds the Python function that a call ends in, which is traced as any frame, or the row of a C
//! function. `builtins` and `models` are the C functions that read or write objects, `construction` and
//! `special` the methods that CPython's C code calls, `module_calls` the known stretch of
//! `nn.Module.__call__`, `called_back` is what C code may call back, `asking` are those in whose middle data may decide, `by_keys` puts things in order by a function of the program's, `dispatched` is `functools.singledispatch`, `hashed` finds entries of dictionaries whose keys hash and compare in Python, `flags` are members of `enum.Flag` that weren't asked for so far, `local_names` is `locals()`, `followed` are C functions that put symbolic numbers in order, `counting` is how a `Counter` counts, `substitutes` is `re.sub` with a function, `symbolic` are calls that are given symbolic numbers, `outside_iterators` those that an iterator from outside makes or is taken whole by, `overridden` are operations that an object takes over by its `__torch_function__`, `weak_references` calls of weak references, `transforms` those of what `torch.func` gives, `programs` those that tensor programs take otherwise. A C function without a row ends the trace before it.
//!
//! May touch: reads, for what a function looks at; effects, for what it writes; operations and numbers, for
//! what it computes.

mod asking;
pub(super) mod autograd_functions;
pub(super) mod builtins;
mod by_keys;
pub(super) mod cached;
pub(super) mod call;
mod called_back;
pub(super) mod checkpoints;
pub(super) mod construction;
pub(super) mod copies;
mod counting;
mod dispatched;
mod flags;
mod followed;
mod hashed;
pub(super) mod hidden;
mod local_names;
pub(super) mod made_iterators;
pub(super) mod marked;
pub(super) mod models;
pub(super) mod module_calls;
mod modules_copied;
mod outside_iterators;
mod overridden;
pub(super) mod programs;
pub(super) mod replaced_fields;
mod signatures;
pub(super) mod special;
mod substitutes;
pub(super) mod symbolic;
pub(super) mod transforms;
mod weak_references;
