//! Structural pattern matching.

use stator_cpython::ops;

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    pub(super) fn get_len(&mut self) -> Done {
        self.sites.matches(&self.frame, self.run.peek(1));
        let length = ops::get_len(self.run.peek(1))?;
        self.run.push(length);
        Ok(())
    }

    pub(super) fn match_mapping(&mut self) -> Done {
        self.sites.matches(&self.frame, self.run.peek(1));
        let matches = ops::is_mapping(self.run.peek(1));
        self.run.push_bool(matches);
        Ok(())
    }

    pub(super) fn match_sequence(&mut self) -> Done {
        self.sites.matches(&self.frame, self.run.peek(1));
        let matches = ops::is_sequence(self.run.peek(1));
        self.run.push_bool(matches);
        Ok(())
    }

    pub(super) fn match_keys(&mut self) -> Done {
        self.sites.matches_keys(&self.frame, self.run.peek(2));
        self.sites.consumes(&self.frame, self.run.peek(2))?;
        let (subject, keys) = (self.run.peek(2), self.run.peek(1));
        let values = self.sites.calls_back(&self.frame, || ops::match_keys(subject, keys))?;
        if let Some(values) = &values {
            self.sites.creates(&self.frame, values.as_borrowed());
        }
        let values = values.unwrap_or_else(|| self.py().None().into_bound(self.py()));
        self.run.push(values);
        Ok(())
    }

    /// Replaces (subject, class, names) by a tuple of attributes or `None`.
    pub(super) fn match_class(&mut self, count: usize) -> Done {
        let (subject, class, names) = (self.run.peek(3), self.run.peek(2), self.run.peek(1));
        let attributes = self.sites.match_class(&self.frame, subject, class, count, names);
        drop(self.run.pop());
        drop(self.run.pop());
        let attributes = match attributes? {
            Some(attributes) => {
                self.sites.creates(&self.frame, attributes.as_borrowed());
                attributes
            }
            None => self.py().None().into_bound(self.py()),
        };
        drop(self.run.replace(1, attributes));
        Ok(())
    }
}
