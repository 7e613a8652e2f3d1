//! Numbers that vary from call to call: symbols, and what is computed from them.
//!
//! A symbolic number is an int or float object of its own, known by its address. The table of them is a note
//! (`notes/symbols.rs`); `symbols` and `facts` fill it and end it, `fact_log` tells what is assumed, `dynamic` decides which sizes
//! become symbols, `data_sizes` and `program_sizes` have those that data decides, `drawn` are those that a random generator gave, `lazy_readers` fixes those that C code reads while something else advances it. `arithmetic`, `number_functions`, `dimensions`, `strides`, `reshaped` and `given_back`
//! compute with them: the result is an object of its own, too, and a node where the graph needs it.
//!
//! Whoever reads a number natively says so; then its value is guarded. `read_tensors` takes
//! numbers out of tensors, of which no guard can speak, `read_numbers` computes with those, `read_exprs` knows what sizes come of them, `orders` puts them in order, `rows` compares tuples and lists of them, `sums` adds them as `sum` does, `float_functions` has other functions of `math`,
//! `texts` makes texts of them, and `pickles` bytes; `tensor_texts` those of tensors with one element, and `tables` has those that are found by a number. `tensors` are their nodes, and what holds them.

pub(super) mod arithmetic;
pub(super) mod clocks;
pub(super) mod data_sizes;
pub(super) mod dimensions;
pub(super) mod drawn;
pub(super) mod dynamic;
pub(super) mod fact_log;
pub(super) mod facts;
pub(super) mod float_functions;
mod given_back;
pub(super) mod handled;
pub(super) mod lazy_readers;
pub(super) mod number_functions;
pub(super) mod orders;
pub(super) mod pickles;
pub(super) mod program_sizes;
pub(super) mod read_exprs;
pub(super) mod read_numbers;
pub(super) mod read_tensors;
mod reshaped;
pub(super) mod rows;
mod special_frames;
pub(super) mod strides;
pub(super) mod sums;
pub(super) mod symbols;
pub(super) mod tables;
pub(super) mod tensor_texts;
pub(super) mod tensors;
pub(super) mod texts;
pub(super) mod withdrawn;
