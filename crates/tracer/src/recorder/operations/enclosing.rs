//! Nodes whose code is the program's own, and is looked at while it is recorded: see `notes::enclosed`.

use stator_cpython::frame::Frame;
use stator_cpython::hook::{Active, Suspended};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};

use crate::recorder::Recorder;
use crate::recorder::ending::outcome::evaluate_recorded;

impl Recorder {
    /// Whether an instruction that has done nothing yet is one of code within a node.
    pub(in crate::recorder) fn is_enclosed(&self, frame: &Frame<'_>) -> bool {
        ops::executed() == self.baseline.get()
            && self.state.try_borrow().is_ok_and(|state| {
                let own = state.frames.innermost();
                state.enclosed.is_on() && own.is_some_and(|own| own.id == frame.id())
            })
    }

    /// Runs the code of a node, `given` these objects: its frames are evaluated, but no part of the graph.
    pub(in crate::recorder) fn enclose<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        given: &[Borrowed<'_, 'py>],
        run: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let Some(mut begun) = self.note(frame, |state| state.begin_enclosed(py, given)) else {
            let _native = Suspended::new(py);
            return run();
        };
        self.links.clear();
        // A replay spares nothing of it.
        let counted = self.tally.clone();
        let result = {
            let _evaluated = Active::new(py, evaluate_recorded);
            run()
        };
        self.tally.reset(&counted);
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.enclosed.end(&mut begun);
        }
        if let Ok(result) = &result {
            self.note(frame, |state| {
                state.keep_sizes(&begun, result.as_borrowed())?;
                state.check_enclosed(py, &begun, name)
            });
        }
        result
    }
}
