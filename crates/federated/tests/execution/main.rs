//! Computations that run on small kernels over integers and floats.

mod bench;
mod deep;
mod operations;
mod scopes;
mod split;
mod streams;
mod threads;
