//! Functions, classes, imports, the interactive prompt.

use stator_bytecode::Opcode;
use stator_cpython::ops;

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    pub(super) fn make_function(&mut self, arg: u32) -> Done {
        let code = self.run.pop();
        let mut part = |bit| (arg & bit != 0).then(|| self.run.pop());
        let (closure, annotations) = (part(8), part(4));
        let (kwdefaults, defaults) = (part(2), part(1));
        let code = code.as_borrowed();
        let function =
            ops::make_function(&self.frame, code, closure, annotations, kwdefaults, defaults)?;
        self.sites.creates(&self.frame, function.as_borrowed());
        self.run.push(function);
        Ok(())
    }

    pub(super) fn load_build_class(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::LOAD_BUILD_CLASS);
        let function = ops::load_build_class(&self.frame)?;
        self.run.push(function);
        Ok(())
    }

    pub(super) fn setup_annotations(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::SETUP_ANNOTATIONS);
        Ok(ops::setup_annotations(&self.frame)?)
    }

    pub(super) fn import_name(&mut self, index: usize) -> Done {
        let code = self.code();
        let (level, from) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.import_name(&self.frame, code.name_at(index), from, level);
        Ok(self.run.finish_two(result)?)
    }

    pub(super) fn import_from(&mut self, index: usize) -> Done {
        let code = self.code();
        let module = self.run.peek(1);
        let value = self.sites.import_from(&self.frame, module, code.name_at(index))?;
        self.run.push(value);
        Ok(())
    }

    pub(super) fn import_star(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::IMPORT_STAR);
        let result = ops::import_star(&self.frame, self.run.peek(1));
        drop(self.run.pop());
        Ok(result?)
    }

    pub(super) fn print_expr(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::PRINT_EXPR);
        let result = ops::print_expr(self.run.peek(1));
        drop(self.run.pop());
        Ok(result?)
    }
}
