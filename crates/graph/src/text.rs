//! Strings of one graph, each stored once. Recording a node hashes a name but allocates nothing.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ids::TextId;

/// The interner: `texts[ids[t].index()] == t` for each string `t` in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    ids: FxHashMap<Arc<str>, TextId>,
    texts: Vec<Arc<str>>,
}

impl Texts {
    /// The id of a string, new or old.
    #[inline]
    pub(crate) fn intern(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = TextId::new(self.texts.len());
        let shared: Arc<str> = text.into();
        if self.ids.len() == self.ids.capacity() {
            // A table that outgrows a small graph's is that of a model: it moves its texts seldom.
            self.ids.reserve(7 * self.ids.len());
        }
        self.texts.push(Arc::clone(&shared));
        self.ids.insert(shared, id);
        id
    }

    pub(crate) fn get(&self, id: TextId) -> Option<&str> {
        self.texts.get(id.index()).map(|text| &**text)
    }
}
