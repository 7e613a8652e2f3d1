//! What a trace that touched an accelerator's tensors depends on besides them.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::Text;

/// What a selected stream is to a program. Which one it is doesn't matter: a replay's operations run on the one that
/// is selected then, as plain Python's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// The one that a device has from the start.
    Default,
    /// One that somebody has made, perhaps for this call alone.
    Made,
}

/// The selected device of an accelerator, the selected streams of some of its devices, and what else was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Its name as a device type, such as `cuda`.
    pub kind: Text,
    /// The device that `kind` without an index means; `None`: nothing depends on it.
    pub device: Option<i64>,
    /// Devices, each with its stream.
    pub streams: Box<[(i64, Stream)]>,
    /// Whether what the selected stream is given goes to a graph of the accelerator's; `None`: it wasn't asked.
    pub capturing: Option<bool>,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(device) = self.device {
            write!(f, "torch.device('{}:{device}') is selected", self.kind)?;
            separator = ", ";
        }
        for (device, stream) in &self.streams {
            let stream = match stream {
                Stream::Default => "the default stream",
                Stream::Made => "another stream than the default one",
            };
            write!(f, "{separator}{stream} on device {device}")?;
            separator = ", ";
        }
        match self.capturing {
            Some(true) => write!(f, "{separator}a graph of {} is captured", self.kind),
            Some(false) => write!(f, "{separator}no graph of {} is captured", self.kind),
            None => Ok(()),
        }
    }
}
