//! What a trace that touched an accelerator's tensors depends on besides them.

use std::fmt;

use crate::Text;

/// What a selected stream is to a program. Which one it is doesn't matter: a replay's operations run on the one that
/// is selected then, as plain Python's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The one that a device has from the start.
    Default,
    /// One that somebody has made, perhaps for this call alone.
    Made,
}

/// The selected device of an accelerator, and the selected streams of some of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Its name as a device type, such as `cuda`.
    pub kind: Text,
    /// The device that `kind` without an index means.
    pub device: i64,
    /// Devices, each with its stream.
    pub streams: Box<[(i64, Stream)]>,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.device('{}:{}') is selected", self.kind, self.device)?;
        for (device, stream) in &self.streams {
            let stream = match stream {
                Stream::Default => "the default stream",
                Stream::Made => "another stream than the default one",
            };
            write!(f, ", {stream} on device {device}")?;
        }
        Ok(())
    }
}
