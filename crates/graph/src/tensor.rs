//! What is known of a node's result: plain numbers, no tensor.
//!
//! Dtypes and devices are PyTorch's own codes (`c10/core/ScalarType.h`, `DeviceType.h`), as
//! `aoti_torch_get_dtype` and `aoti_torch_get_device_type` return them, so that reading a tensor's
//! metadata costs no Python call. PyTorch only ever appends to both lists (they are serialised).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A tensor's element type, by PyTorch's `ScalarType` code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dtype(pub i8);

/// Names in the order of the codes.
const DTYPES: [&str; 46] = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "quint4x2",
    "quint2x4",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bits16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "uint16",
    "uint32",
    "uint64",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
];

impl Dtype {
    /// The dtype with this name (`float32`).
    pub fn from_name(name: &str) -> Option<Self> {
        let code = DTYPES.iter().position(|known| *known == name)?;
        i8::try_from(code).ok().map(Self)
    }

    /// Its name (`float32`); `None` for a code that this list doesn't know.
    pub fn known_name(self) -> Option<&'static str> {
        usize::try_from(self.0).ok().and_then(|code| DTYPES.get(code)).copied()
    }

    /// Its name, or `unknown`.
    pub fn name(self) -> &'static str {
        self.known_name().unwrap_or("unknown")
    }

    /// The bytes that an element takes; `None` for types of which it isn't a whole number, or
    /// that are quantised.
    pub fn bytes(self) -> Option<u64> {
        Some(match self.name() {
            "uint8" | "int8" | "bool" | "float8_e5m2" | "float8_e4m3fn" | "float8_e5m2fnuz"
            | "float8_e4m3fnuz" | "float8_e8m0fnu" => 1,
            "int16" | "uint16" | "float16" | "bfloat16" => 2,
            "int32" | "uint32" | "float32" | "complex32" => 4,
            "int64" | "uint64" | "float64" | "complex64" => 8,
            "complex128" => 16,
            _ => return None,
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known_name() {
            Some(name) => write!(f, "torch.{name}"),
            None => write!(f, "dtype#{}", self.0),
        }
    }
}

/// A device: PyTorch's `DeviceType` code, and an index (negative where it has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// The `DeviceType` code.
    pub kind: i8,
    /// Which of them, or -1.
    pub index: i8,
}

/// Names in the order of the codes.
const DEVICES: [&str; 21] = [
    "cpu",
    "cuda",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "fpga",
    "maia",
    "xla",
    "vulkan",
    "metal",
    "xpu",
    "mps",
    "meta",
    "hpu",
    "ve",
    "lazy",
    "ipu",
    "mtia",
    "privateuseone",
];

impl Device {
    /// The CPU.
    pub const CPU: Self = Self { kind: 0, index: -1 };

    /// The code of a device type. A name of nobody's is one that a program gave `privateuseone`.
    #[must_use]
    pub fn kind_of(name: &str) -> i8 {
        let known = DEVICES.iter().position(|known| *known == name);
        known.unwrap_or(DEVICES.len() - 1) as i8
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.kind).ok().and_then(|code| DEVICES.get(code)) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "device#{}", self.kind)?,
        }
        if self.index >= 0 { write!(f, ":{}", self.index) } else { Ok(()) }
    }
}

/// A run of sizes followed by as many strides in a graph's pool; read them with
/// [`Graph::sizes`](crate::Graph::sizes) and [`Graph::strides`](crate::Graph::strides).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimList {
    pub(crate) start: u32,
    pub(crate) rank: u32,
    pub(crate) has_strides: bool,
}

impl DimList {
    /// The number of dimensions.
    pub const fn rank(self) -> usize {
        self.rank as usize
    }
}

/// A tensor's metadata at the time of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMeta {
    /// The element type.
    pub dtype: Dtype,
    /// Where the data is.
    pub device: Device,
    /// Sizes and strides. (Sparse tensors have no strides.)
    pub dims: DimList,
    /// Whether autograd follows it.
    pub requires_grad: bool,
}

/// What a node made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// The recorder didn't say.
    #[default]
    Unknown,
    /// One tensor.
    Tensor(TensorMeta),
    /// A symbolic integer (`torch.SymInt` in exported graphs).
    Integer,
    /// A symbolic float (`torch.SymFloat` in exported graphs).
    Float,
    /// A text of numbers that nodes gave.
    Text,
    /// A tuple, list or named tuple with this many elements, each reached by
    /// [`Graph::get_item`](crate::Graph::get_item).
    Structure(u32),
    /// Nothing that a later node may use (`setitem`, `None`).
    Nothing,
}
