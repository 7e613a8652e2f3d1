//! Where a federated value lives.

use std::fmt;

/// A placement of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// At each of the clients.
    Clients,
    /// At the one server.
    Server,
}

impl Placement {
    /// Every placement.
    pub const ALL: [Self; 2] = [Self::Clients, Self::Server];

    /// The name in printed types and in Python: `CLIENTS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clients => "CLIENTS",
            Self::Server => "SERVER",
        }
    }

    /// The name in messages: `clients`.
    pub fn uri(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Server => "server",
        }
    }

    /// The placement with this uri.
    pub fn from_uri(uri: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|at| at.uri() == uri)
    }

    /// Whether values placed here are equal everywhere, unless their type says otherwise.
    pub fn default_all_equal(self) -> bool {
        self == Self::Server
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
