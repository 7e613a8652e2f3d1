//! What a trace that touched an accelerator's tensors depends on besides them.

use std::fmt;

use crate::Text;

/// The selected device of an accelerator, and the selected streams of some of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Its name as a device type, such as `cuda`.
    pub kind: Text,
    /// The device that `kind` without an index means.
    pub device: i64,
    /// Devices, each with the number of its stream.
    pub streams: Box<[(i64, i64)]>,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.device('{}:{}') is selected", self.kind, self.device)?;
        for (device, stream) in &self.streams {
            write!(f, ", stream {stream} on device {device}")?;
        }
        Ok(())
    }
}
