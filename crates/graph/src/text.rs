//! Strings of one graph, each stored once. Recording a node hashes a name but allocates nothing.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::ids::TextId;

/// The interner: `texts[ids[t].index()] == t` for each string `t` in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Arc<str>>", into = "Vec<Arc<str>>")]
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

impl From<Vec<Arc<str>>> for Texts {
    fn from(texts: Vec<Arc<str>>) -> Self {
        let ids = texts.iter().enumerate().map(|(index, text)| (text.clone(), TextId::new(index)));
        Self { ids: ids.collect(), texts }
    }
}

impl From<Texts> for Vec<Arc<str>> {
    fn from(texts: Texts) -> Self {
        texts.texts
    }
}
