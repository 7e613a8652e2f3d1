//! Reads of what lies outside the call: names, attributes, items, the parts of containers.
//!
//! A read finds the object as CPython would, gives it a source and adds the guards under which the next call
//! finds the same. It never changes anything. What can't be guarded isn't followed: the room says so by
//! a [`Stop`](super::Stop), and the trace ends before the instruction.
//!
//! `found` guards an object by what it is. Lookups come in layers: `descriptors` find, `attributes`, `class_attributes`, `members` and
//! `instance_dicts` read, `items`, `keys` and `protocols` take what Python's protocols give. `whole_containers`
//! guards what C code is about to read, `only_added` puts that off for containers that are only added to, of which `histories` asks by nodes, and `last_items` finds elements from the end. `patterns` reads what a class pattern asks,
//! `texts` what a text is made of, `value_classes` the values of numbers and texts of own classes, `gradients` the `grad` of tensors. `proxies` asks the dictionaries behind proxies. `numbers_found` takes numbers that are found as symbols, `open_keys` lets them be keys, `tensor_items` says which indices depend on data, `programs` what tensor programs read otherwise.

pub(super) mod abstract_classes;
pub(super) mod attributes;
pub(super) mod class_attributes;
pub(super) mod compared;
pub(super) mod descriptors;
pub(super) mod found;
pub(super) mod getters;
pub(super) mod gradients;
pub(super) mod histories;
pub(super) mod identity;
pub(super) mod instance_dicts;
pub(super) mod items;
pub(super) mod keys;
mod last_items;
pub(super) mod members;
pub(super) mod names;
pub(super) mod numbers_found;
pub(super) mod only_added;
pub(super) mod open_keys;
pub(super) mod patterns;
pub(super) mod programs;
pub(super) mod protocols;
pub(super) mod proxies;
pub(super) mod recursive_texts;
pub(super) mod tensor_attributes;
pub(super) mod tensor_items;
pub(super) mod texts;
pub(super) mod value_classes;
pub(super) mod whole_containers;
