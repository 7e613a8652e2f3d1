//! Graph breaks and what comes behind them: where traces can begin in the middle of a program.

pub mod point;
pub mod session;
pub mod testing;
