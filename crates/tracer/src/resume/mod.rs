//! Graph breaks and what comes behind them: where traces can begin in the middle of a program.

pub mod anatomy;
pub mod drive;
pub mod listing;
pub mod point;
pub mod session;
pub mod settle;
pub mod stage;
pub mod testing;
pub mod tracebacks;
