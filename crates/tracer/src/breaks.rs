//! The break table: why a call can't (or can't further) be traced.
//!
//! Each row has a stable id, what happened, why it can't be part of a graph, and what the user can
//! do. A [`Break`] is one occurrence, with the user's place in it.

use std::fmt;

use stator_faults::Fault;

use crate::locate::shown_path;

macro_rules! breaks {
    ($($(#[$doc:meta])* $variant:ident $id:literal $what:literal $why:literal $hint:literal)*) => {
        /// A row of the break table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// Every row.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The stable id, such as `SB001`.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }

            /// What happened, in one phrase.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$variant => $what),* }
            }

            /// Why that can't be part of a graph.
            #[must_use]
            pub const fn why(self) -> &'static str {
                match self { $(Self::$variant => $why),* }
            }

            /// What the user can do.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint),* }
            }
        }
    };
}

// Ids are stable: one that is given up isn't given again (SB014).
breaks! {
    /// A C function the function table doesn't know.
    OpaqueCall "SB001" "call of a function that Stator does not know"
        "what it reads and writes cannot be guarded or replayed"
        "move the call out of the compiled function"
    /// Python read the data of a tensor.
    DataRead "SB002" "Python reads the data of a tensor"
        "a guard can speak of a tensor's metadata, not of its values"
        "keep the decision in tensors (torch.where), or move it out of the compiled function"
    /// The shape of a result depends on data.
    DynamicOutput "SB003" "the shape of an operation's result depends on tensor data"
        "a replay would have to know the shape before it runs"
        "use an operation with a fixed result shape (masks, torch.where)"
    /// A write to something that existed before the call.
    OutsideWrite "SB004" "the function changes an object that existed before the call"
        "this kind of write is not replayed yet"
        "return the new value, or make the change outside the compiled function"
    /// An object came from somewhere that isn't modelled.
    UnknownOrigin "SB005" "an object of unknown origin"
        "it cannot be found again by a replay, so nothing about it can be guarded"
        "pass it as an argument, or create it in the compiled function"
    /// An instruction the recorder can't follow.
    Instruction "SB006" "a construct that Stator does not trace"
        "its effects are not recorded"
        "move it out of the compiled function"
    /// An operation raised while it was recorded.
    OperationRaised "SB007" "a tensor operation raised an exception"
        "whether it raises may depend on tensor data"
        "check its inputs before the call"
    /// The result can't be rebuilt.
    Result "SB008" "the result holds an object that Stator cannot rebuild"
        "a replay has to make a new one for each call"
        "return tensors, containers, dataclasses or values from the compiled function"
    /// An iterator from outside was advanced.
    OutsideIterator "SB009" "an iterator that existed before the call is advanced"
        "what it gives next cannot be read without running it, or the trace has changed what it goes over"
        "go over a list, tuple, dict or range, and change it behind the loop"
    /// Identity became a value.
    Identity "SB010" "the identity of an object becomes a value"
        "addresses differ from run to run"
        "compare with `is` instead of id() or hash()"
    /// A mode is active that a replay would bypass.
    ForeignMode "SB011" "a torch function mode, dispatch mode or functorch transform is active, or a method of tensors was replaced"
        "a replay would bypass it"
        "enter the mode inside the compiled function; leave the methods of torch.Tensor as they are"
    /// Unsupported use of a type.
    Unsupported "SB012" "an object that Stator does not trace"
        "its reads cannot be guarded"
        "move its use out of the compiled function"
    /// Generator and coroutine functions.
    Suspendable "SB013" "a generator or coroutine function"
        "its frame outlives the call"
        "compile the function that consumes it"
    /// Too many entries.
    RecompileLimit "SB015" "the function was traced too often"
        "its guards fail again and again"
        "raise recompile_limit, or pass the changing value as a tensor"
    /// `stator.disable`, `torch.compiler.disable`.
    Disabled "SB016" "a function that is not to be traced"
        "its mark says so"
        "remove stator.disable or torch.compiler.disable, or call it outside the compiled function"
    /// `stator.graph_break`, `torch._dynamo.graph_break`.
    Requested "SB017" "a graph break that was asked for"
        "the function calls stator.graph_break or torch._dynamo.graph_break"
        "remove that call"
    /// A warning or log record that can't be given by a replay.
    Told "SB020" "user code may learn of a warning or log record"
        "a handler, filter or text of its own may see or change anything at that moment"
        "nothing needs to be done: the graph is cut here, and the call is made as in plain Python"
    /// A tensor program would change something.
    Impure "SB021" "something outside the program would change"
        "a program computes its outputs from its inputs, wherever it runs, and does nothing else"
        "return the new value; take gradients of tensors made from the inputs"
    /// A size that a tensor program is not told.
    VaryingSize "SB022" "the value of a size that varies is needed"
        "it is traced once, for all sizes of the dimensions that were declared unknown"
        "declare the size, or compute with tensors of that size instead of with the number"
    /// What has no name in the text of a program.
    NotInProgram "SB023" "a tensor program has no place for this"
        "a program holds tensor operations of PyTorch, tensors and plain values"
        "move it out of the traced function"
    /// A function that runs others in its own way.
    Machinery "SB024" "a part of PyTorch that traces, transforms or differentiates what it is given"
        "what it calls runs under state of its own, and its own steps are no part of a graph"
        "nothing needs to be done: the call runs as in plain Python, and a new graph begins behind it"
    /// An operation that may raise, where a replay couldn't end as plain Python does.
    Irrevocable "SB025" "an operation may raise where a replay could not take back what was done"
        "its errors depend on data, and the function must end as it does in plain Python"
        "nothing needs to be done: the call runs as in plain Python, and a new graph begins behind it"
    /// `sys.settrace`, `sys.setprofile`, and what uses them.
    Watched "SB026" "a trace or profile function is active in this thread"
        "it is told of each call and line of plain Python, which a replay has none of"
        "nothing needs to be done: calls are replayed again once it is gone"
    /// Few frames are left.
    Depth "SB031" "the limit of recursion is near"
        "what a recording needs beside the program must not fail in the middle"
        "raise the limit (sys.setrecursionlimit), or compile a function that is called farther out"
    /// More operations than a trace may have.
    Length "SB032" "the trace has become too long"
        "each operation of a trace takes memory, and a loop that goes on for hours would take all of it"
        "compile what the loop calls; this call runs as plain Python from here on"
    /// An error of Stator's own.
    Internal "SB030" "Stator has a bug"
        "what was recorded up to there may be wrong"
        "report what the InternalErrorWarning says; the function runs as plain Python from now on"
    /// `stator._testing.break_everywhere()`.
    Asked "SB019" "a break that a test of Stator asked for"
        "stator._testing is in use"
        "don't use stator._testing outside tests"
    /// A random number that can't be a symbol.
    RandomNumber "SB027" "the value of a random number is needed"
        "each call draws another one, so a trace for one value would not be used again"
        "compute with the number or compare it, or draw it outside the compiled function"
    /// A lock that a replay can't hold.
    Lock "SB028" "a lock that a replay cannot hold as the call does"
        "a replay takes its locks before it reads anything and holds them until it has written"
        "let the block under the lock be traced as a whole, or move it out of the compiled function"
    /// A CUDA graph is being captured.
    UntoldGenerator "SB029" "a random generator does not tell its state"
        "a call that is recorded or replayed must be able to put it back; CUDA's generators say nothing while a graph is captured"
        "nothing needs to be done: calls are replayed again once the graph is captured"
}

/// One occurrence of a break.
#[derive(Clone, Debug)]
pub struct Break {
    /// The row.
    pub reason: Reason,
    /// What exactly, such as the function's name; may be empty.
    pub detail: String,
    /// The user's frames at that point, outermost first.
    pub stack: Vec<Place>,
}

impl Reason {
    /// The command that prints the row.
    #[must_use]
    pub fn help(self) -> String {
        format!("python -m stator explain {}", self.id())
    }

    /// The row's place on its page.
    fn fragment(self) -> String {
        self.id().to_lowercase()
    }
}

/// A place in the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File name as the code object has it.
    pub file: String,
    /// Line, 1-based.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.reason.id(), self.explanation())?;
        if let Some(place) = self.stack.last() {
            let file = shown_path(&place.file);
            write!(f, " (at {file}:{} in {})", place.line, place.function)?;
        }
        Ok(())
    }
}

/// Id, explanation, hint, stack (file, line, function), why.
type Arguments<'a> =
    (&'static str, String, &'static str, Vec<(&'a str, u32, &'a str)>, &'static str);

/// Why a trace ends where Stator itself has failed.
#[must_use]
pub fn internal(fault: &Fault) -> (Reason, String) {
    (Reason::Internal, fault.what().to_owned())
}

impl Break {
    /// One without details.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self { reason, detail: String::new(), stack: Vec::new() }
    }

    /// What the exceptions of `stator.errors` that speak of a break are made from.
    #[must_use]
    pub fn arguments(&self) -> Arguments<'_> {
        let stack = self.stack.iter();
        let stack = stack.map(|place| (place.file.as_str(), place.line, place.function.as_str()));
        let reason = self.reason;
        (reason.id(), self.explanation(), reason.hint(), stack.collect(), reason.why())
    }

    /// What happened, with the details.
    #[must_use]
    pub fn explanation(&self) -> String {
        let what = self.reason.what();
        if self.detail.is_empty() { what.to_owned() } else { format!("{what}: {}", self.detail) }
    }

    /// The report of the `graph_breaks` log. `source` gives the text of a place's line.
    #[must_use]
    pub fn report(&self, source: &dyn Fn(&Place) -> String) -> String {
        let mut text = format!("{} {}", self.reason.id(), self.reason.what());
        if !self.detail.is_empty() {
            text += &format!("\n  What: {}", self.detail);
        }
        text += &format!("\n  Why: {}\n  Hint: {}", self.reason.why(), self.reason.hint());
        text += &format!("\n  See: {}", self.reason.help());
        if !self.stack.is_empty() {
            text += "\n  User code:";
        }
        for place in &self.stack {
            let file = shown_path(&place.file);
            text += &format!("\n    {file}:{} in {}", place.line, place.function);
            let code = source(place);
            if !code.is_empty() {
                text += &format!("\n      {code}");
            }
        }
        text
    }
}

/// The table as a page: `docs/breaks.md`.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(PAGE);
    for reason in Reason::ALL {
        let (id, what) = (reason.id(), reason.what());
        let (why, hint) = (reason.why(), reason.hint());
        let anchor = reason.fragment();
        text += &format!(
            "\n<a id=\"{anchor}\"></a>\n\n## {id}: {what}\n\n* Why: {why}.\n* Hint: {hint}.\n"
        );
    }
    text
}

const PAGE: &str = "<!-- Generated from crates/tracer/src/breaks.rs by `make bless`. -->

# What can't be traced

When a call can't be traced further, and the trace can't end there as a graph break either, CPython finishes it, once, as it would without Stator. Calls that fit
another trace are still replayed. Of those that fit none the 2nd, 4th, 8th, ... such one is recorded again, as what stood in the way may be
gone, and the others run natively from their start. SB013 and SB016 of the function itself hold for good, SB011 as long as the mode is active.
A call that raises an exception of its own isn't remembered: the next call is recorded anew.

`STATOR_LOGS=graph_breaks` shows each case with the user's frames, `stator.stats(fn).reason` keeps the last one, and with
`fullgraph=True` it is an error, `stator.GraphBreakError` (SB020 aside). The ids are stable.
";

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn ids_are_unique_and_rows_complete() {
        let mut ids: Vec<_> = Reason::ALL.iter().map(|reason| reason.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert!(!reason.what().is_empty() && !reason.why().is_empty());
            assert!(!reason.hint().is_empty());
        }
    }
}
