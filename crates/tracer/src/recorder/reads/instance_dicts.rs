//! Where instance dictionaries come from: they belong to their objects, but the program can hold them
//! apart.

use stator_cpython::object::{Borrowed, Object};
use stator_guards::{Source, SourceId};

use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State};

impl State {
    /// The instance dictionary of an object; from outside if the object is.
    pub fn instance_dict<'py>(&mut self, object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        let dict = heap::instance_dict(object)?;
        self.know_instance_dict(object, dict.as_borrowed());
        Some(dict)
    }

    /// Says where an object's instance dictionary came from.
    pub fn know_instance_dict(&mut self, object: Borrowed<'_, '_>, dict: Borrowed<'_, '_>) {
        if let Some(known) = self.source(dict) {
            self.know_again(object, dict, known);
            return;
        }
        match self.origin(object) {
            Some(Origin::Source(owner)) => {
                let source = self.sources.intern(Source::Dict(owner));
                self.objects.adopt(dict, source);
            }
            _ => self.set_fresh(dict),
        }
    }

    /// An instance dictionary that was found elsewhere before: there it may be another one next time.
    #[inline]
    fn know_again(&mut self, object: Borrowed<'_, '_>, dict: Borrowed<'_, '_>, known: SourceId) {
        let Some(owner) = self.source(object) else { return };
        if matches!(self.sources.get(known), Source::Dict(of) if *of == owner) {
            return;
        }
        let source = self.sources.intern(Source::Dict(owner));
        if let Err(stop) = self.adopt(source, dict) {
            self.failure.get_or_insert(stop);
        }
    }
}
